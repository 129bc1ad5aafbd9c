"""The text and the passkeys of a study of context extension: trained on, and measured.

A batch is a pure function of the seed and the step: all rows of a seed see the same data in the
same order. No key that is asked for in a measurement is in any prompt that is trained on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from milepost import corpus
from milepost.errors import UsageError
from milepost.files import digest, write_whole
from milepost.study.extension.study import Settings
from milepost.tasks import passkey, text
from milepost.tasks.task import keyed_generator

PASSKEY_SEED = 0
"""All models are asked for the same keys."""


@dataclass(frozen=True)
class Tokens:
    """How a study's text becomes tokens and back."""

    encode: Callable[[str], list[int]]
    decode: Callable[[Any], str]
    join: list[int] | None
    """Tokens between documents; None where documents are joined as bytes are."""


class Data:
    """The text and the passkeys of a cell: what is trained on, and what is measured."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self.settings = settings
        self.directory = directory

    @cached_property
    def tokens(self) -> Tokens:
        """The checkpoint's own tokens, or bytes."""
        if self.settings.checkpoint is None:
            return Tokens(text.encode, text.decode, None)
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(self.settings.checkpoint, local_files_only=True)
        if tokenizer.eos_token_id is None:
            raise UsageError(
                f"checkpoint: expected a tokenizer with an eos_token, which goes between "
                f"documents, got {self.settings.checkpoint} without: add it to its "
                f"tokenizer_config.json"
            )
        return Tokens(
            lambda words: list(tokenizer(words)["input_ids"]),
            lambda ids: str(tokenizer.decode(list(map(int, ids)))),
            [int(tokenizer.eos_token_id)],
        )

    def split(self, name: str) -> Int64[np.ndarray, " N"]:
        """All tokens of a split, documents in the order of their names."""
        source, wanted = self.settings.corpus, name
        if name == corpus.TEST and self.settings.test_corpus is not None:
            source, wanted = self.settings.test_corpus, ""
        if not corpus.exists(source):
            raise UsageError(f"corpus {source!r} does not exist: give a path, or python-prose")
        if self.tokens.join is None and wanted:
            return corpus.load(source)[wanted].astype(np.int64)
        place = {
            "corpus": dict(corpus.source_of(corpus.resolved(source)).identity),
            "split": wanted,
            "checkpoint": self.settings.checkpoint,
        }
        path = self.directory / "tokens" / f"{digest(place)}.npy"
        if not path.exists():
            joined = self.joined(source, wanted)
            write_whole(path, lambda file: np.save(file, joined))
        found: Int64[np.ndarray, " N"] = np.load(path, mmap_mode="r")
        return found

    def joined(self, source: str, wanted: str) -> Int64[np.ndarray, " N"]:
        """The documents of a split, or of all splits, each followed by the end-of-text token."""
        between = self.tokens.join or list(corpus.SEPARATOR)
        pieces = [
            np.array([*self.tokens.encode(document.decode()), *between], dtype=np.int64)
            for split, documents in corpus.documents(source)
            if wanted in ("", split)
            for _, document in documents
            if document.strip()
        ]
        return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int64)

    @cached_property
    def train(self) -> Int64[np.ndarray, " N"]:
        return self.split(corpus.TRAIN)

    @cached_property
    def test(self) -> Tensor:
        """The text that perplexity is of: the beginning of the test documents."""
        found = self.split(corpus.TEST)[: self.settings.test_tokens + 1]
        if len(found) < 2:
            raise UsageError(
                f"corpus: expected test text, got {self.settings.corpus} without any: give more "
                f"documents (5 % are for testing), or --settings test_corpus=PATH"
            )
        return torch.from_numpy(np.array(found))

    @cached_property
    def trials(self) -> list[passkey.Trial]:
        """The passkeys that are asked for: of each length with room for the answer."""
        s = self.settings
        lengths = [length - s.answer for length in s.passkey_lengths]
        return passkey.trials(
            self.tokens.encode, lengths, depths=s.depths, count=s.trials, seed=PASSKEY_SEED
        )

    @cached_property
    def keys(self) -> Int64[np.ndarray, " K"]:
        """The keys to train on: all that no measurement asks for."""
        every = np.arange(passkey.FIRST_KEY, passkey.FIRST_KEY + passkey.KEYS)
        return np.setdiff1d(every, [int(trial.key) for trial in self.trials])

    def batch(
        self, seed: int, stream: str, step: int, length: int, times: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Windows of text and passkey prompts, `times` as many as the settings say."""
        s = self.settings
        rng = keyed_generator("context extension", seed, stream, step)
        if len(self.train) <= length:
            raise UsageError(
                f"corpus: expected more than {length} tokens to train on, got {len(self.train)} in "
                f"{s.corpus}: give more text"
            )
        starts = rng.integers(len(self.train) - length, size=times * s.texts)
        windows = self.train[starts[:, None] + np.arange(length + 1)]
        if not s.passkeys:
            return torch.from_numpy(windows), torch.empty(0, length + 1, dtype=torch.int64)
        most = length + 1 - passkey.FRAME
        if self.tokens.join is not None or most < 0:
            raise UsageError(
                f"setting 'passkeys' must be 0 with a checkpoint, and for a length below "
                f"{passkey.FRAME - 1} bytes, got {s.passkeys} at {length}: change it, or length"
            )
        keys = self.keys[rng.integers(len(self.keys), size=times * s.passkeys)]
        # Of all lengths, and line ends fill the row: with one length a model may learn which digit
        # comes at which place of the row, and be lost one byte further on.
        garbage = rng.integers(most + 1, size=times * s.passkeys)
        before = rng.integers(garbage + 1)
        prompts = [
            text.encode(
                f"{passkey.prompt(str(key), first, count - first)} {key}".ljust(length + 1, "\n")
            )
            for key, count, first in zip(
                keys.tolist(), garbage.tolist(), before.tolist(), strict=True
            )
        ]
        return torch.from_numpy(windows), torch.tensor(prompts)


def fingerprint_of(tokens: Tensor) -> str:
    """A digest of the test text."""
    return sha256(tokens.numpy().tobytes()).hexdigest()[:16]
