"""Language modelling: say the next byte of a text, or its next token.

A sequence is a window of `length` tokens of a corpus, its start uniform over all places where a
window of that length begins, in the documents of the split laid end to end. All tokens but the
first are scored: the model is trained on −log p(x_t | x_0 … x_{t−1}), in nats.
`milepost.perplexity` measures that on a whole text, which is what language models are compared by;
the error rates that every task has are those of the likeliest token. A token is a byte, unless
another tokenizer is given or trained.

Source: the language modelling of Golovneva et al. 2024 (CoPE, arXiv:2405.18719), sections 5.4
(Wikitext-103, windows of 1024 tokens) and 5.5 (code).

Where the paper leaves room:
- Its tokens are GPT-2's, so far as its parameter counts tell. Bytes need no vocabulary that was
  made from other text, and let corpora be compared in bits per byte. GPT-2's own are to be had by
  the path of its tokenizer.json.
- Its code corpus is private, and Wikitext-103 would have to be downloaded. The default is text that
  every Python brings along; other text is given by its path, or by a name on Hugging Face's Hub.
- Longer text is its Fig. 3, which has no set of its own: "length x2" and "length x4" are windows of
  the same test documents.
- A window may begin within a document and end in another one. A model is not told where.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Integer
from torch import Tensor

from milepost import corpus
from milepost.corpus import tokens as tokenizers
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

    Settings: `corpus`, "python-prose", "python-code", the path of a file or folder of text, or
    "hf:NAME" (`milepost.corpus`); `length`, the tokens of a window; and `tokens`: "bytes", the
    size of a vocabulary that is learned from the training documents, or the path of a
    tokenizer.json (`milepost.corpus.tokens`).

    An example, with the scored bytes marked:

        R e t u r n ␣ t h e
          ^ ^ ^ ^ ^ ^ ^ ^ ^
    """

    name: ClassVar[str] = "text"
    paper: ClassVar[str] = "CoPE (Golovneva et al. 2024, arXiv:2405.18719), sections 5.4 and 5.5"
    headline: ClassVar[Literal["token", "sequence", "last"]] = "token"

    corpus: str = "python-prose"
    length: int = 1024
    tokens: int | str = "bytes"

    def __post_init__(self) -> None:
        """Reject a corpus that is not there, and windows with nothing to say."""
        found = isinstance(self.corpus, str) and corpus.exists(self.corpus)
        named = " or ".join(corpus.NAMES)
        self.expect("corpus", found, f"{named}, the path of a file or folder of text, or hf:NAME")
        self.expect("length", is_whole(self.length, 2), "an int of at least 2")
        given = is_whole(self.tokens, 257)
        if isinstance(self.tokens, str):
            given = self.tokens == "bytes" or Path(self.tokens).is_file()
        expected = "bytes, an int of at least 257, or the path of a tokenizer.json"
        self.expect("tokens", given, expected)

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of Hugging Face's `tokenizers`; None for bytes."""
        return None if self.tokens == "bytes" else tokenizers.tokenizer(self.corpus, self.tokens)

    @property
    def vocab(self) -> tuple[str, ...]:
        """The 256 bytes, or the tokenizer's tokens."""
        return BYTES if self.tokens == "bytes" else tokenizers.names(self.tokenizer)

    @property
    def vocab_size(self) -> int:
        """The number of token ids."""
        if isinstance(self.tokens, int):
            return self.tokens  # known before it is learned, which reads the whole corpus
        return 256 if self.tokens == "bytes" else int(self.tokenizer.get_vocab_size())

    def check(self) -> None:
        """A `UsageError` where a small corpus has too few words for as many tokens."""
        if isinstance(self.tokens, int) and corpus.is_small(self.corpus):
            tokenizers.tokenizer(self.corpus, self.tokens)

    @property
    def max_length(self) -> int:
        """Every window has the same length."""
        return self.length

    def text(self, split: str, count: int | None = None) -> Integer[Tensor, " N"]:
        """The first `count` tokens of a split, or all: of the test documents, if it is no split.

        Bytes are of dtype uint8, other tokens of int64.
        """
        found = self._tokens(split)[:count]
        return torch.tensor(found if self.tokens == "bytes" else found.astype(np.int64))

    def bytes_of(self, tokens: Integer[Tensor, " N"]) -> bytes:
        """The bytes that tokens stand for."""
        if self.tokens == "bytes":
            return bytes(tokens.tolist())
        return tokenizers.bytes_of(self.tokenizer, tokens.numpy())

    def _tokens(self, split: str) -> Integer[np.ndarray, " N"]:
        # "example" and whatever else somebody calls a test
        known = split if split in corpus.SPLITS else corpus.TEST
        if self.tokens == "bytes":
            return corpus.load(self.corpus)[known]
        return tokenizers.load(self.corpus, self.tokens, known)

    def draw(self, rng: np.random.Generator, size: int) -> Batch:
        """Draw windows of the training documents."""
        return self.draw_from(corpus.TRAIN, rng, size)

    def draw_from(self, split: str, rng: np.random.Generator, size: int) -> Batch:
        """Draw windows of the split's documents."""
        text = self._tokens(split)
        unit = "bytes" if self.tokens == "bytes" else "tokens"
        if not len(text):
            raise UsageError(
                f"setting 'corpus' of the text task: expected documents of every split, got "
                f"{self.corpus} without any for {split}, as it is small or has few files; give "
                f"more documents, or a folder with train, validation and test"
            )
        if len(text) < self.length:
            raise UsageError(
                f"setting 'length' of the text task: expected at most {len(text)}, the {unit} of "
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
