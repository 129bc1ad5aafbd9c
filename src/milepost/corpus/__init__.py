"""Text to train and test language models on, as bytes, split by document.

A corpus is the name of one that every Python brings along, a path, or a dataset of Hugging Face:

    python-prose  the documentation strings of the standard library, a document for each module, and
                  the topics of Python's `help()`, a document each
    python-code   the source of the standard library, a document for each module
    a folder      every .txt, .md, .rst and .py file in it, a document each; or the files of
                  WikiText as they are published, a document for each article
    a file        of any name; its documents are pieces of `PIECE` bytes that end with a line
    hf:NAME       a dataset on the Hub, or hf:PATH, a copy (`milepost.corpus.huggingface`)

The standard library has other text in another version of Python: compare figures of the same
version. A document goes to training, validation or testing by its name alone, unless its authors
have split the corpus: a folder that holds `train`, `validation` and `test` (folders, or .txt files)
stays as they have it. `milepost.corpus.splits` has the rules, also for where a part is missing.

Text is UTF-8, and bytes stay as they are, line ends included (the standard library's become \\n).
The documents of a split are joined in the order of their names, with an empty line in between;
rows and articles in the order of their files, articles with nothing in between.

A small corpus is held in memory, a big one mapped from a file (`milepost.corpus.store`).
`milepost.corpus.tokens` makes other tokens of it.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from milepost.corpus import huggingface, store
from milepost.corpus.folders import (
    PIECE,
    SUFFIXES,
    assigned,
    files,
    of_path,
    pieces,
    read,
    utf8,
    walk,
    wikitext,
)
from milepost.corpus.python import code, docstrings, prose, standard_library, topics
from milepost.corpus.source import Source
from milepost.corpus.splits import (
    SEPARATOR,
    SPLITS,
    TEST,
    TRAIN,
    VALIDATION,
    Documents,
    by_name,
    by_split,
    split_of,
    unassigned,
)
from milepost.errors import UsageError

_NAMED: dict[str, Callable[[], Documents]] = {"python-code": code, "python-prose": prose}
NAMES = tuple(_NAMED)


def exists(corpus: str) -> bool:
    """Whether there is such a corpus; it is not read yet, and no network is asked."""
    if corpus.startswith(huggingface.PREFIX):
        return huggingface.exists(corpus)
    return corpus in _NAMED or Path(corpus).exists()


def load(corpus: str) -> Mapping[str, UInt8[np.ndarray, " N"]]:
    """The bytes of each split, read once in a process; a split may be empty.

    Whoever takes slices of these arrays need not know whether they are in memory or mapped from a
    file.

    Raises:
        UsageError: a file cannot be read or is not UTF-8, or there is no text at all; or a dataset
            cannot be loaded, or the cache not be written.
    """
    return _load(resolved(corpus))


def documents(corpus: str) -> list[tuple[str, list[tuple[str, bytes]]]]:
    """The names and texts of the documents of each split, all in memory."""
    return by_split(_read(corpus, source_of(corpus)))


def is_small(corpus: str) -> bool:
    """Whether it is known to be read in a moment, and to stay in memory."""
    return _stays(source_of(resolved(corpus)))


def line_ends_are_words(corpus: str) -> bool:
    """Whether the corpus is WikiText, of which a line end is counted as a word, its <eos>."""
    return source_of(resolved(corpus)).line_ends


def resolved(corpus: str) -> str:
    """The same from whatever folder: a path that does not depend on where one is."""
    if corpus in _NAMED:
        return corpus
    prefix = huggingface.PREFIX if corpus.startswith(huggingface.PREFIX) else ""
    place, mark, count = corpus.removeprefix(prefix).partition("#" if prefix else "\0")
    if prefix and not Path(place).exists():
        return corpus
    return f"{prefix}{Path(place).resolve()}{mark}{count}"


def source_of(corpus: str) -> Source:
    """What can be told of a corpus before it is read."""
    if corpus.startswith(huggingface.PREFIX):
        return huggingface.source(corpus)
    if corpus in _NAMED:
        named = _NAMED[corpus]
        return Source(lambda: unassigned(named()), {"name": corpus, "python": sys.version}, 0)
    path = Path(corpus)
    try:
        found = [(file, file.stat()) for file in read(path)]
    except OSError as error:
        raise _unreadable(corpus, error) from error
    published = path.is_dir() and bool(wikitext(path))
    return Source(
        lambda: assigned(path),
        {
            "path": str(path.resolve()),
            "files": [[str(file), of.st_size, of.st_mtime_ns] for file, of in found],
        },
        sum(of.st_size for _, of in found),
        between=b"" if published else SEPARATOR,
        line_ends=published,
    )


@lru_cache(maxsize=8)
def _load(corpus: str) -> Mapping[str, UInt8[np.ndarray, " N"]]:
    source = source_of(corpus)
    if _stays(source):
        texts: dict[str, list[bytes]] = {split: [] for split in SPLITS}
        for split, _, text in _read(corpus, source):
            texts[split].append(text)
        found: store.Splits = {
            split: np.frombuffer(source.between.join(each), dtype=np.uint8)
            for split, each in texts.items()
        }
    else:
        joined = {"between": source.between.decode()}
        found = store.mapped(
            {**source.identity, **joined}, np.dtype(np.uint8), lambda: _joined(corpus, source)
        )
    if not any(map(len, found.values())):
        raise UsageError(
            f"corpus: expected text, got {corpus} without any: give a folder of "
            f"{', '.join(SUFFIXES)} files, or a file"
        )
    return found


def _stays(source: Source) -> bool:
    return source.size is not None and source.size <= store.SMALL


def _joined(corpus: str, source: Source) -> Iterator[tuple[str, bytes]]:
    begun = set[str]()
    for split, _, text in _read(corpus, source):
        if split in begun:
            yield split, source.between
        begun.add(split)
        yield split, text


def _read(corpus: str, source: Source) -> Iterator[tuple[str, str, bytes]]:
    """The documents with something in them."""
    try:
        for split, name, text in source.assigned():
            if text.strip():
                yield split, name, text
    except OSError as error:
        raise _unreadable(corpus, error) from error


def _unreadable(corpus: str, error: OSError) -> UsageError:
    return UsageError(
        f"corpus: cannot read {error.filename or corpus} ({error.strerror or error}): give the "
        f"path of text that can be read"
    )


__all__ = [
    "NAMES",
    "PIECE",
    "SEPARATOR",
    "SPLITS",
    "SUFFIXES",
    "TEST",
    "TRAIN",
    "VALIDATION",
    "Documents",
    "Source",
    "by_name",
    "code",
    "docstrings",
    "documents",
    "exists",
    "files",
    "is_small",
    "line_ends_are_words",
    "load",
    "of_path",
    "pieces",
    "prose",
    "resolved",
    "source_of",
    "split_of",
    "standard_library",
    "topics",
    "utf8",
    "walk",
]
