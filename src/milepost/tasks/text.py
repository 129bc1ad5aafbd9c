"""Language modelling on bytes: say the next byte of a text.

A sequence is a window of `length` bytes of a corpus, its start uniform over all places where a
window of that length begins, in the documents of the split laid end to end. All bytes but the first
are scored: the model is trained on −log p(x_t | x_0 … x_{t−1}), in nats. `milepost.perplexity`
measures that on a whole text, which is what language models are compared by; the error rates that
every task has are those of the likeliest byte.

Source: the language modelling of Golovneva et al. 2024 (CoPE, arXiv:2405.18719), sections 5.4
(Wikitext-103, windows of 1024 tokens) and 5.5 (code).

Where the paper leaves room:
- Its tokens are GPT-2's, so far as its parameter counts tell. Bytes need no vocabulary that was
  made from other text, and let corpora be compared in bits per byte.
- Its code corpus is private, and Wikitext-103 would have to be downloaded. The default is text that
  every Python brings along; other text is given by its path.
- Longer text is its Fig. 3, which has no set of its own: "length x2" and "length x4" are windows of
  the same test documents.
- A window may begin within a document and end in another one. A model is not told where.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from milepost import corpus
from milepost.errors import UsageError
from milepost.tasks.task import Batch, Task, TestSet, is_whole

_ESCAPED = {"\n": r"\n", "\r": r"\r", "\t": r"\t", " ": "␣"}

BYTES = tuple(
    _ESCAPED.get(chr(byte)) or (chr(byte) if 0x20 < byte < 0x7F else f"0x{byte:02x}")
    for byte in range(256)
)
"""The printable name of each byte, without a space in it."""


def encode(text: str) -> list[int]:
    """The bytes of a text, as UTF-8."""
    return list(text.encode())


def decode(tokens: Iterable[int]) -> str:
    """The text of bytes; what is not UTF-8 becomes �."""
    return bytes(tokens).decode(errors="replace")


@dataclass(frozen=True)
class Text(Task):
    """Say the next byte.

    Settings: `corpus`, "python-prose", "python-code" or the path of a file or folder of text
    (`milepost.corpus`), and `length`, the bytes of a window.

    An example, with the scored bytes marked:

        R e t u r n ␣ t h e
          ^ ^ ^ ^ ^ ^ ^ ^ ^
    """

    name: ClassVar[str] = "text"
    paper: ClassVar[str] = "CoPE (Golovneva et al. 2024, arXiv:2405.18719), sections 5.4 and 5.5"
    headline: ClassVar[Literal["token", "sequence", "last"]] = "token"

    corpus: str = "python-prose"
    length: int = 1024

    def __post_init__(self) -> None:
        """Reject a corpus that is not there, and windows with nothing to say."""
        found = isinstance(self.corpus, str) and corpus.exists(self.corpus)
        named = " or ".join(corpus.NAMES)
        self.expect("corpus", found, f"{named}, or the path of a file or folder of text")
        self.expect("length", is_whole(self.length, 2), "an int of at least 2")

    @property
    def vocab(self) -> tuple[str, ...]:
        """The 256 bytes."""
        return BYTES

    @property
    def max_length(self) -> int:
        """Every window has the same length."""
        return self.length

    def text(self, split: str) -> UInt8[Tensor, " N"]:
        """All bytes of a split: those of the test documents, if it is not one of training."""
        return torch.tensor(self._bytes(split))

    def _bytes(self, split: str) -> UInt8[np.ndarray, " N"]:
        # "example" and whatever else somebody calls a test
        known = split if split in corpus.SPLITS else corpus.TEST
        return corpus.load(self.corpus)[known]

    def draw(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw windows of the training documents."""
        return self.draw_from(corpus.TRAIN, rng, size)

    def draw_from(self, split: str, rng: np.random.Generator, size: int) -> Batch:
        """Draw windows of the split's documents."""
        text = self._bytes(split)
        if not len(text):
            raise UsageError(
                f"setting 'corpus' of the text task: expected documents of every split, got "
                f"{self.corpus} without any for {split}, as it is small or has few files; give "
                f"more documents, or a folder with train, validation and test"
            )
        if len(text) < self.length:
            raise UsageError(
                f"setting 'length' of the text task: expected at most {len(text)}, the bytes of "
                f"the {split} documents of {self.corpus}, got {self.length}; shorten it, or give "
                f"a corpus with more text"
            )
        starts = rng.integers(len(text) - self.length + 1, size=size)
        tokens = text[starts[:, None] + np.arange(self.length)].astype(np.int64)
        scored = torch.ones(tokens.shape, dtype=torch.bool)
        scored[:, 0] = False
        return Batch(torch.from_numpy(tokens), scored)

    def test_sets(self) -> dict[str, TestSet]:
        """Windows of the test documents, then longer ones."""
        return {
            "in": self.altered(4000, "as in training, of other documents"),
            "length x2": self.altered(2000, "twice as long", length=2 * self.length),
            "length x4": self.altered(1000, "four times as long", length=4 * self.length),
        }
