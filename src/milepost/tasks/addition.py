"""Addition: the digits of a + b, least significant first.

A sequence is one sum, a token for each character, every number written backwards:

    rev(a) + rev(b) = rev(a + b) <end>        32 + 9 = 41 is   2 3 + 9 = 1 4 <end>

The lengths i of a and j of b are uniform over 1 … digits, one apart from the other, so that all
pairs (i, j) are equally likely. Given its length a number is uniform over those that have it: its
first digit is 1 to 9. What follows the "=" is scored, the end included.

Source: McLeish et al. 2024 (Abacus, arXiv:2405.17399), whose data of up to 40 digits Zhu et al.
2025 (TAPE, arXiv:2501.00712), section 4.1, train on; their Figures 2 and 5 have up to 40 digits,
Figure 4 has 20, and all ask for twice as many.

Where the papers leave room:
- "Length up to 40" is that of each number, not of both together: Table 5 has "40 + 40".
- "i x i operand lengths" and "not necessary to have the same length" contradict each other. The
  published data has every pair (i, j), and so does this.
- A number of one digit is not 0, as in the published data.
- Padding stands right of the end, where a causal model never sees it, and is not scored.
- "length x2" is the figures' grid: all pairs up to twice the digits, the trained ones included. Its
  sequence error is one minus the average accuracy that they print, on a sample of sums; the probe
  `addition_grid` has every cell. 10,000 sums are ours: the figures have 100 for each cell.
- Short sums are few, and so many of those asked for have also been trained on, there as here.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Int64

from milepost.errors import UsageError
from milepost.tasks.task import Batch, Task, TestSet, is_whole

PAD, ZERO = 0, 1  # ZERO + d is the token of digit d
PLUS, EQUALS, END = 11, 12, 13
WORDS = ("<pad>", *"0123456789", "+", "=", "<end>")


@dataclass(frozen=True)
class Addition(Task):
    """Add two numbers. Setting: how many `digits` the longest of them have.

    An example, 132 + 99 = 231, with the scored tokens marked:

        2 3 1 + 9 9 = 1 3 2 <end>
                      ^ ^ ^ ^^^^^
    """

    name: ClassVar[str] = "addition"
    paper: ClassVar[str] = "McLeish et al. 2024, arXiv:2405.17399; TAPE (arXiv:2501.00712), Fig. 2"
    headline: ClassVar[Literal["token", "sequence", "last"]] = "sequence"

    digits: int = 40

    def __post_init__(self) -> None:
        """Reject numbers without digits."""
        self.expect("digits", is_whole(self.digits, 1), "an int of at least 1")

    @property
    def vocab(self) -> tuple[str, ...]:
        """Padding, the digits, the signs and the end."""
        return WORDS

    @property
    def max_length(self) -> int:
        """That of two of the longest numbers, whose sum has one digit more."""
        return longest(self.digits, self.digits)

    def draw(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw the lengths, then the numbers."""
        return sums(rng, rng.integers(1, self.digits + 1, size=(size, 2)))

    def exactly(self, i: int, j: int, rng: np.random.Generator, size: int) -> Batch:
        """`size` sums of a number of `i` digits and one of `j`, however many were trained."""
        for argument, value in (("i", i), ("j", j), ("size", size)):
            if not is_whole(value, 1):
                raise UsageError(
                    f"{argument} must be a whole number above 0, got {value!r}: give the digits "
                    f"of both numbers and how many sums to draw"
                )
        return sums(rng, np.tile([i, j], (size, 1)))

    def test_sets(self) -> dict[str, TestSet]:
        """As trained, then the papers' grid."""
        return {
            "in": self.altered(10_000, "as in training"),
            "length x2": self.altered(
                10_000, "all lengths up to twice the digits", digits=2 * self.digits
            ),
        }


def longest(i: int, j: int) -> int:
    """How many tokens a sum of `i` and `j` digits has at most: its signs, its end, and a carry."""
    return i + j + max(i, j) + 4


def sums(rng: np.random.Generator, lengths: Int64[np.ndarray, "B 2"]) -> Batch:
    """One sum for each pair of lengths."""
    numbers = _numbers(rng, lengths)
    answer, answer_length = _added(numbers, lengths.max(axis=1))
    size = len(lengths)

    def sign(token: int) -> Int64[np.ndarray, "B 1"]:
        return np.full((size, 1), token)

    a, b = (_words(numbers[:, k], lengths[:, k]) for k in (0, 1))
    question = [a, sign(PLUS), b, sign(EQUALS)]
    answered = [_words(answer, answer_length), sign(END)]
    return _packed(np.concatenate(question, axis=1), np.concatenate(answered, axis=1))


def _numbers(
    rng: np.random.Generator, lengths: Int64[np.ndarray, "B 2"]
) -> Int64[np.ndarray, "B 2 n"]:
    """Digits, least significant first, and zeros beyond the length."""
    place = np.arange(lengths.max())
    digits = rng.integers(10, size=(*lengths.shape, place.size))
    first = rng.integers(1, 10, size=lengths.shape)
    last_place = lengths[..., None] - 1
    return np.where(place < last_place, digits, np.where(place == last_place, first[..., None], 0))


def _added(
    numbers: Int64[np.ndarray, "B 2 n"], length: Int64[np.ndarray, " B"]
) -> tuple[Int64[np.ndarray, "B m"], Int64[np.ndarray, " B"]]:
    """The sums' digits and how many they are, by pencil and paper: no integer is long enough."""
    columns = numbers.sum(axis=1)
    digits = np.zeros((len(columns), columns.shape[1] + 1), dtype=np.int64)
    carry = np.zeros(len(columns), dtype=np.int64)
    for place in range(columns.shape[1]):
        carry, digits[:, place] = np.divmod(columns[:, place] + carry, 10)
    digits[:, -1] = carry
    # beyond both numbers are zeros, so that a carry out of them stands where the sum gets longer
    return digits, length + (digits[np.arange(len(digits)), length] > 0)


def _words(
    digits: Int64[np.ndarray, "B n"], lengths: Int64[np.ndarray, " B"]
) -> Int64[np.ndarray, "B n"]:
    """The tokens of numbers, padded to the longest."""
    return np.where(np.arange(digits.shape[1]) < lengths[:, None], ZERO + digits, PAD)


def _packed(question: Int64[np.ndarray, "B q"], answer: Int64[np.ndarray, "B r"]) -> Batch:
    """Question and answer without the padding among them; the answer is scored."""
    words = np.concatenate([question, answer], axis=1)
    place = np.cumsum(words != PAD, axis=1) - 1
    row, column = np.nonzero(words != PAD)
    tokens = np.full((len(words), place.max() + 1), PAD, dtype=np.int64)
    tokens[row, place[row, column]] = words[row, column]
    scored = np.zeros(tokens.shape, dtype=bool)
    scored[row, place[row, column]] = column >= question.shape[1]
    return Batch(torch.from_numpy(tokens), torch.from_numpy(scored))
