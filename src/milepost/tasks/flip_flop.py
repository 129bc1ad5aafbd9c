"""Flip-flop language modelling: recall the bit last written, however long ago that was.

A sequence is alternating instructions and bits. The bit after w (write) or i (ignore) is uniform;
the bit after r (read) is the one after the last w. The first instruction is w and the last is r;
those between are drawn independently as in FFL(p): p_i = p, p_w = p_r = (1 - p) / 2.

Source: Liu et al. 2023, "Exposing Attention Glitches with Flip-Flop Language Modeling"
(arXiv:2306.00946), whose published data is FFL(0.8) at 512 tokens with 16K test sequences, 160K of
FFL(0.98) and 4K of FFL(0.1). Golovneva et al. 2024 (CoPE, arXiv:2405.18719), section 5.1 and
Table 2, repeats it.

Where the papers leave room:
- Loss and error are over the bits after r only (Liu et al.'s "clean" mode); the rest is chance.
- CoPE's example scores the final read only; Table 2 does not say. Here every read counts
  ("token"), and the final read ("last") is reported beside it.
- CoPE's one OOD set "increases the number of ignore instructions": that is "sparse" here.
- The "length" sets are in neither paper; p is unchanged in them unless they say so.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch

from milepost.tasks.task import Batch, Task, TestSet, is_whole

WRITE, IGNORE, READ, ZERO = range(4)  # ZERO + bit is the token of a bit


@dataclass(frozen=True)
class FlipFlop(Task):
    """FFL(p). Settings: `length` in tokens, and `ignore`, the p of FFL(p).

    An example, with the scored bits marked:

        w 0 i 1 r 0 w 1 i 0 i 1 r 1
                  ^               ^
    """

    name: ClassVar[str] = "flip-flop"
    paper: ClassVar[str] = "Liu et al. 2023, arXiv:2306.00946; CoPE (arXiv:2405.18719), Table 2"
    headline: ClassVar[Literal["token", "sequence", "last"]] = "token"

    length: int = 512
    ignore: float = 0.8

    def __post_init__(self) -> None:
        """Reject settings that define no flip-flop."""
        even = is_whole(self.length, 4) and self.length % 2 == 0
        self.expect("length", even, "an even int of at least 4, an instruction and a bit each")
        number = isinstance(self.ignore, int | float) and not isinstance(self.ignore, bool)
        self.expect("ignore", number and 0 <= self.ignore <= 1, "a probability from 0 to 1")

    @property
    def vocab(self) -> tuple[str, ...]:
        """The three instructions and the two bits."""
        return ("w", "i", "r", "0", "1")

    @property
    def max_length(self) -> int:
        """Every sequence has the same length."""
        return self.length

    def draw(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw instructions and bits, then let every read repeat the last write."""
        shape = (size, self.length // 2)
        others = np.where(rng.random(shape) < 0.5, WRITE, READ)
        instructions = np.where(rng.random(shape) < self.ignore, IGNORE, others)
        instructions[:, 0] = WRITE
        instructions[:, -1] = READ
        bits = rng.integers(2, size=shape)
        writes = np.where(instructions == WRITE, np.arange(shape[1]), 0)
        last_write = np.maximum.accumulate(writes, axis=1)
        reads = instructions == READ
        bits = np.where(reads, np.take_along_axis(bits, last_write, axis=1), bits)

        tokens = np.stack([instructions, ZERO + bits], axis=2).reshape(size, self.length)
        scored = np.stack([np.zeros_like(reads), reads], axis=2).reshape(size, self.length)
        return Batch(torch.from_numpy(tokens), torch.from_numpy(scored))

    def test_sets(self) -> dict[str, TestSet]:
        """The published sets, then longer sequences."""
        twice, four_times = 2 * self.length, 4 * self.length
        return {
            "in": self.altered(16_000, "as in training"),
            "sparse": self.altered(
                160_000, "FFL(0.98): the last write lies further back", ignore=0.98
            ),
            "dense": self.altered(4_000, "FFL(0.1): many writes and reads", ignore=0.1),
            "length x2": self.altered(4_000, "twice as long", length=twice),
            "length x2 sparse": self.altered(
                4_000, "twice as long, FFL(0.98)", length=twice, ignore=0.98
            ),
            "length x4": self.altered(4_000, "four times as long", length=four_times),
        }
