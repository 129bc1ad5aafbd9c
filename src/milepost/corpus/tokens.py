"""Tokens of a corpus other than its bytes: of a tokenizer trained on it, or one from a file.

A tokenizer trained here is byte-level BPE as GPT-2's: the 256 bytes are its first tokens, its
merges those of the most frequent pairs within words of the training documents, of their first
`LEARNED_FROM` bytes. It has no special tokens, and any text comes back to the byte. Training it has
no chance in it: the same text and size make the same tokens, with one version of `tokenizers`.

A tokenizer from a file is any `tokenizer.json` of Hugging Face; special tokens, which it may put
around a text, are left out.

Source: byte-level BPE, Radford et al. 2019 (GPT-2), after Sennrich et al. 2016, arXiv:1508.07909.
"""

from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Integer

from milepost import corpus
from milepost.corpus import store
from milepost.corpus.splits import TRAIN
from milepost.errors import UsageError

LEARNED_FROM = 2**27
"""So many bytes show what is frequent."""

CHUNK = 2**20
"""So many bytes or a few more are made tokens at a time."""


def tokenizer(source: str, tokens: int | str) -> Any:
    """The tokenizer of a vocabulary of so many tokens trained on a corpus, or the one of a file.

    Raises:
        UsageError: `tokenizers` is not installed, the file holds no tokenizer, or the corpus is too
            small for so many tokens.
    """
    if isinstance(tokens, str):
        return _read(str(Path(tokens).resolve()))
    return _trained(corpus.resolved(source), tokens)


@lru_cache(maxsize=8)
def _read(path: str) -> Any:
    try:
        return _library().Tokenizer.from_file(path)
    except Exception as error:  # of no type of its own
        raise UsageError(
            f"tokens: expected the path of a tokenizer.json, got {path} ({error}): give one that "
            f"tokenizers can read"
        ) from error


@lru_cache(maxsize=8)
def _trained(source: str, size: int) -> Any:
    library = _library()
    learned = library.Tokenizer(library.models.BPE())
    learned.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    learned.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=size,
        show_progress=False,
        initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
    )
    text = corpus.load(source)[TRAIN][:LEARNED_FROM]
    learned.train_from_iterator(texts(text), trainer)
    if learned.get_vocab_size() != size:
        raise UsageError(
            f"tokens: expected at most {learned.get_vocab_size()}, as many as the training "
            f"documents of {source} have frequent pairs for, got {size}: give more text, as "
            f"corpus=PATH or corpus=hf:NAME, or fewer, as tokens={learned.get_vocab_size()}"
        )
    return learned


def names(of: Any) -> tuple[str, ...]:
    """The printable name of every token, without a space in it."""
    found = (of.id_to_token(number) for number in range(of.get_vocab_size()))
    # a file may leave out an id
    return tuple(
        f"<{number}>" if name is None else "␣".join(name.split(" "))
        for number, name in enumerate(found)
    )


def load(source: str, tokens: int | str, split: str) -> Integer[np.ndarray, " N"]:
    """The tokens of a split of a corpus; those of a big one are mapped from a file."""
    path = tokens if isinstance(tokens, int) else str(Path(tokens).resolve())
    return _load(corpus.resolved(source), path, split)


@lru_cache(maxsize=8)
def _load(source: str, tokens: int | str, split: str) -> Integer[np.ndarray, " N"]:
    of, text = tokenizer(source, tokens), corpus.load(source)
    dtype = np.dtype(np.uint16 if of.get_vocab_size() <= 2**16 else np.uint32)
    if sum(map(len, text.values())) <= store.SMALL:
        return np.concatenate([np.empty(0, dtype), *encoded(of, text[split], dtype)])
    identity = {
        "corpus": dict(corpus.source_of(source).identity),
        "tokenizer": sha256(of.to_str().encode()).hexdigest(),
    }
    return store.mapped(
        identity,
        dtype,
        lambda: (
            (name, ids.tobytes())
            for name, found in text.items()
            for ids in encoded(of, found, dtype)
        ),
    )[split]


def encoded(of: Any, text: np.ndarray, dtype: np.dtype[Any]) -> Iterator[Integer[np.ndarray, " n"]]:
    """The tokens of a text, a chunk at a time."""
    for chunk in texts(text):
        yield np.array(of.encode(chunk, add_special_tokens=False).ids, dtype)


def texts(text: np.ndarray) -> Iterator[str]:
    """A text in chunks, cut where a tokenizer of words cuts anyway.

    That is after a line end between two characters that are not white space, or before the one
    space that opens a line; where there is none in a whole chunk, before a character.
    """
    first = 0
    while first < len(text):
        last = first + CHUNK
        while last < min(len(text), first + 2 * CHUNK) and not _cut(text, last):
            last += 1
        while last < len(text) and text[last] & 0xC0 == 0x80:  # within a character
            last += 1
        yield text[first:last].tobytes().decode()
        first = last


_SPACE = frozenset(b" \t\n\r\v\f")


def _cut(text: np.ndarray, at: int) -> bool:
    if text[at - 1] != 0x0A:
        return False
    if text[at] == 0x20 and at + 1 < len(text):
        return int(text[at + 1]) not in _SPACE
    return int(text[at]) not in _SPACE and int(text[at - 2]) not in _SPACE


def bytes_of(of: Any, ids: Integer[np.ndarray, " n"]) -> bytes:
    """The bytes that tokens stand for, also where a character is in several of them."""
    if type(of.decoder).__name__ != "ByteLevel":
        return str(of.decode(ids.tolist(), skip_special_tokens=False)).encode()
    characters = {character: byte for byte, character in enumerate(alphabet())}
    special = {token.content for token in of.get_added_tokens_decoder().values()}
    found = []
    for name in map(of.id_to_token, ids.tolist()):
        plain = name is None or name in special or not characters.keys() >= set(name)
        found.append((name or "").encode() if plain else bytes(characters[c] for c in name))
    return b"".join(found)


def alphabet() -> list[str]:
    """The character that stands for each byte in byte-level tokenizers.

    A byte that Latin-1 prints is that character; the others are those from 256 on, in turn.
    """
    printed = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printed else next(others)) for byte in range(256)]


def _library() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise UsageError(
            "tokens: this needs tokenizers, which is not installed here: "
            "pip install 'milepost[text]', or leave it out for bytes"
        ) from error
    return tokenizers
