"""What a task is: a pure function from (seed, split, step) to a batch of sequences.

A batch depends on nothing but those three, the task's settings and the batch size: no state is
kept and no global generator is read, so a resumed run sees the data of an uninterrupted one, and
the split being part of the key keeps training and test streams apart. Settings are not part of
it: the same key under other settings draws from the same stream of random numbers. Where sequences
are found in files, as in text, what the files say is a setting too.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal
from zlib import crc32

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from milepost.errors import UsageError

IGNORE = -100
"""The target where nothing is scored; `torch.nn.functional.cross_entropy` skips it by default."""

KEY_LIMIT = 2**32
"""Seeds and steps stay below it, one word of the key each, so that no two keys coincide."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Sequences, and which of their tokens the model is asked for.

    `scored[b, t]` says that `tokens[b, t]` is asked for, given `tokens[b, :t]`.
    """

    tokens: Int64[Tensor, "B L"]
    scored: Bool[Tensor, "B L"]

    @property
    def inputs(self) -> Int64[Tensor, "B S"]:
        """What the model reads."""
        return self.tokens[:, :-1]

    @property
    def targets(self) -> Int64[Tensor, "B S"]:
        """What it should predict after each input, or `IGNORE` where nothing is scored."""
        return torch.where(self.scored[:, 1:], self.tokens[:, 1:], IGNORE)


@dataclass(frozen=True)
class Task(ABC):
    """A family of sequences; the fields of a subclass are its settings, the paper's by default.

    `headline` is the error that the paper's table most likely means: over scored tokens
    ("token"), over sequences with any scored token wrong ("sequence"), or over the last scored
    token of each sequence ("last").
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    headline: ClassVar[Literal["token", "sequence", "last"]]

    @property
    @abstractmethod
    def vocab(self) -> tuple[str, ...]:
        """The printable name of every token, in the order of the token ids."""

    @property
    @abstractmethod
    def max_length(self) -> int:
        """The number of tokens in the longest sequence that can be drawn."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw `size` sequences, with no other source of chance than `rng`."""

    @abstractmethod
    def test_sets(self) -> "dict[str, TestSet]":
        """Every test set by name: "in" (the training distribution) first, longer ones last."""

    @property
    def vocab_size(self) -> int:
        """The number of token ids."""
        return len(self.vocab)

    def check(self) -> None:  # noqa: B027, most tasks have nothing to check
        """Raise now what drawing would raise later, if a moment is enough to know it."""

    def batch(self, seed: int, split: str, step: int, size: int) -> Batch:
        """The `step`-th batch of the stream of `seed` and `split`."""
        for argument, value, least in (("seed", seed, 0), ("step", step, 0), ("size", size, 1)):
            if not is_whole(value, least) or value >= KEY_LIMIT:
                raise UsageError(
                    f"{argument} of a {self.name} batch: expected an int from {least} to "
                    f"{KEY_LIMIT - 1}, got {value!r}; give one in that range"
                )
        return self.draw_from(split, keyed_generator(self.name, seed, split, step), size)

    def draw_from(self, split: str, rng: np.random.Generator, size: int) -> Batch:
        """Draw for one split. Sequences that are made up differ by `rng`, which is keyed by it.

        A task whose sequences are found, not made up, keeps here what it tests on out of training.
        """
        return self.draw(rng, size)

    def render(self, tokens: Tensor | Sequence[int]) -> str:
        """The tokens' printable names, separated by spaces."""
        return " ".join(self.vocab[int(token)] for token in tokens)

    def show(self, tokens: Tensor | Sequence[int], scored: Tensor | Sequence[bool]) -> str:
        """One sequence as two lines: the tokens, and carets under the scored ones."""
        words = [self.vocab[int(token)] for token in tokens]
        marks = [
            ("^" if mark else " ") * len(word) for word, mark in zip(words, scored, strict=True)
        ]
        return f"{' '.join(words)}\n{' '.join(marks).rstrip()}"

    def altered(self, sequences: int, about: str, **settings: Any) -> "TestSet":
        """A test set of this task under other settings."""
        task = replace(self, **settings)
        return TestSet(task, sequences, about, round(task.max_length / self.max_length, 1))

    def expect(self, setting: str, valid: bool, expected: str) -> None:
        """Raise a `UsageError` about a setting unless it is valid."""
        if not valid:
            raise UsageError(
                f"setting {setting!r} of the {self.name} task: expected {expected}, "
                f"got {getattr(self, setting)!r}; leave it out for {getattr(type(self), setting)}"
            )


@dataclass(frozen=True)
class TestSet:
    """A task to be tested on, usually the trained one under other settings.

    `sequences` is the number at the paper's scale, `about` one line on what differs from
    training, `length_factor` the length of the sequences relative to training's.
    """

    __test__: ClassVar[bool] = False  # pytest takes a class of this name for a group of tests

    task: Task
    sequences: int
    about: str
    length_factor: float = 1.0


def keyed_generator(name: str, seed: int, split: str, step: int) -> np.random.Generator:
    """The counter-based generator of one batch, a function of the four arguments alone."""
    key = np.random.SeedSequence([crc32(name.encode()), seed, crc32(split.encode()), step])
    return np.random.Generator(np.random.Philox(key))


def is_whole(value: object, least: int) -> bool:
    """Whether the value is an int (True and False are not) of at least `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
