"""Selective copy: repeat a sequence without its blanks.

A mix of `data` symbols and `blanks` blanks in uniformly random order, a separator, and then the
data symbols in the order of the mix. Symbols are uniform over 14; with the blank and the
separator that makes the vocabulary of 16.

Source: Gu and Dao 2023 (Mamba, arXiv:2312.00752), in the form of Golovneva et al. 2024 (CoPE,
arXiv:2405.18719), section 5.2 and Table 2: 256 symbols, and 256 blanks (128 "dense", 512
"sparse").

Where the papers leave room:
- CoPE copies "the non-blank token a distance of 256 (non-blanks) away", one token at a time; so
  the copy is a teacher-forced suffix, not the parallel read-out of Mamba's marker tokens. Loss
  and error are over the suffix only.
- Table 2's metric is not named. It is very likely exact match of the whole sequence: 100.0 %
  error (sd 0.0) is out of reach of a per-token error, which guessing brings to 93 %. The headline
  is therefore "sequence", and "token" is reported beside it.
- No separator is mentioned. One is needed to say that copying starts, and it takes one of the 16.
- Blanks may follow the last data symbol; MAD-lab's generator never lets them.
- The number of test sequences is not given: 8192 resolve the 0.004 % of Table 10.
- "length x2" is in no paper: data and blanks both double, so that the density stays and the
  distance to copy over doubles.
"""

from dataclasses import dataclass
from string import ascii_uppercase
from typing import ClassVar, Literal

import numpy as np
import torch

from milepost.tasks.task import Batch, Task, TestSet, is_whole

SYMBOLS = 14
BLANK, SEPARATOR = 0, SYMBOLS + 1  # the symbols are 1 to SYMBOLS


@dataclass(frozen=True)
class SelectiveCopy(Task):
    """Copy without the blanks. Settings: how many `data` symbols and `blanks` are mixed.

    An example, with "." the blank, "|" the separator and the scored tokens marked:

        D . . C F . F . E | D C F F E
                            ^ ^ ^ ^ ^
    """

    name: ClassVar[str] = "selective-copy"
    paper: ClassVar[str] = "Gu and Dao 2023, arXiv:2312.00752; CoPE (arXiv:2405.18719), Table 2"
    headline: ClassVar[Literal["token", "sequence", "last"]] = "sequence"

    data: int = 256
    blanks: int = 256

    def __post_init__(self) -> None:
        """Reject settings that leave nothing to copy."""
        self.expect("data", is_whole(self.data, 1), "an int of at least 1")
        self.expect("blanks", is_whole(self.blanks, 0), "an int of at least 0")

    @property
    def vocab(self) -> tuple[str, ...]:
        """The blank, the data symbols and the separator."""
        return (".", *ascii_uppercase[:SYMBOLS], "|")

    @property
    def max_length(self) -> int:
        """Every sequence has the same length: mix, separator, copy."""
        return self.data + self.blanks + 1 + self.data

    def draw(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw the symbols and where in the mix they stand."""
        symbols = rng.integers(1, SYMBOLS + 1, size=(size, self.data))
        unmixed = np.arange(self.data + self.blanks) < self.data
        filled = rng.permuted(np.broadcast_to(unmixed, (size, unmixed.size)), axis=1)
        mix = np.full(filled.shape, BLANK)
        mix[filled] = symbols.ravel()  # both in row order, and every row has room for its own

        separator = np.full((size, 1), SEPARATOR)
        tokens = np.concatenate([mix, separator, symbols], axis=1)
        scored = np.zeros(tokens.shape, dtype=bool)
        scored[:, -self.data :] = True
        return Batch(torch.from_numpy(tokens), torch.from_numpy(scored))

    def test_sets(self) -> dict[str, TestSet]:
        """The paper's three densities, then a longer sequence."""
        half, twice = self.blanks // 2, 2 * self.blanks
        return {
            "in": self.altered(8192, "as in training"),
            "dense": self.altered(8192, "half the blanks", blanks=half),
            "sparse": self.altered(8192, "twice the blanks", blanks=twice),
            "length x2": self.altered(
                8192, "twice the data and twice the blanks", data=2 * self.data, blanks=twice
            ),
        }
