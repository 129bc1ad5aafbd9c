"""Which sequences a training step sees: a pure function of the settings and the step.

Nothing here keeps a place in a stream, so a resumed run sees the data of one never stopped.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Int64
from torch.nn.functional import pad

from milepost.tasks.task import Batch, Task
from milepost.training.settings import Settings

TRAIN = "train"
CHUNK = 64


def sequences(task: Task, seed: int, split: str, count: int) -> Iterator[Batch]:
    """The first `count` of the endless list of sequences of (seed, split), `CHUNK` at a time.

    The list is drawn in batches of one size, so a longer part of it begins with a shorter one.
    """
    for step, first in enumerate(range(0, count, CHUNK)):
        batch = task.batch(seed, split, step, CHUNK)
        rows = min(CHUNK, count - first)
        yield Batch(batch.tokens[:rows], batch.scored[:rows])


class TrainingData:
    """The micro-batches of every step: new sequences, or those of a finite set."""

    def __init__(self, settings: Settings, task: Task) -> None:
        self.settings = settings
        self.task = task
        self.finite = None
        if settings.train_sequences is not None:
            self.finite = FiniteSet(task, settings.seed, settings.train_sequences)

    def __call__(self, step: int) -> list[Batch]:
        """The `accumulate` micro-batches of the step."""
        first = step * self.settings.accumulate
        return [self._batch(first + k) for k in range(self.settings.accumulate)]

    def _batch(self, index: int) -> Batch:
        if self.finite is None:
            return self.task.batch(self.settings.seed, TRAIN, index, self.settings.batch)
        return self.finite.batch(index, self.settings.batch)


class FiniteSet:
    """A set of `count` sequences, held in memory and passed through epoch after epoch.

    Every epoch has an order of its own. Batches are cut from the epochs laid end to end, so one
    may hold the end of an epoch and the beginning of the next.
    """

    def __init__(self, task: Task, seed: int, count: int) -> None:
        drawn = list(sequences(task, seed, TRAIN, count))
        longest = max(batch.tokens.shape[1] for batch in drawn)
        short = [longest - batch.tokens.shape[1] for batch in drawn]
        padded = list(zip(drawn, short, strict=True))
        self.tokens = torch.cat([pad(batch.tokens, (0, n)) for batch, n in padded])
        self.scored = torch.cat([pad(batch.scored, (0, n)) for batch, n in padded])
        self.seed = seed
        self.count = count

    def batch(self, index: int, size: int) -> Batch:
        """The `index`-th batch of the epochs laid end to end."""
        places = range(index * size, (index + 1) * size)
        rows = [order(self.seed, p // self.count, self.count)[p % self.count] for p in places]
        tokens, scored = self.tokens[rows], self.scored[rows]
        # what follows the last scored token changes no answer of a causal model
        end = int(scored.any(0).nonzero().max()) + 1
        return Batch(tokens[:, :end], scored[:, :end])


@lru_cache(maxsize=2)
def order(seed: int, epoch: int, count: int) -> Int64[np.ndarray, " count"]:
    """In which order the epoch passes through the set."""
    key = np.random.SeedSequence([seed, epoch])
    return np.random.Generator(np.random.Philox(key)).permutation(count)
