"""Text to train and test language models on, as bytes, split by document.

A corpus is the name of one that every Python brings along, or a path:

    python-prose  the documentation strings of the standard library, a document for each module, and
                  the topics of Python's `help()`, a document each
    python-code   the source of the standard library, a document for each module
    a folder      every .txt, .md, .rst and .py file in it, a document each
    a file        of any name; its documents are pieces of `PIECE` bytes that end with a line

Of the standard library everything is taken but tests, what this machine's build wrote
(`_sysconfigdata…`), installed packages, and from the code the topics, which are prose. Its modules
are read and parsed, never imported. Another version of Python has other text: compare figures of
the same version.

Which split a document is in depends on its name alone, relative to the folder: 90 % are for
training, 5 % each for validation and for testing, by a hash. So no document is in two splits, and
none moves when others come or go. A folder that holds `train`, `validation` and `test` (folders, or
.txt files) is split already, and stays as its authors have it.

Files are UTF-8, and bytes stay as they are, line ends included (the standard library's become \\n).
The documents of a split are joined in the order of their names, with an empty line in between.
"""

import ast
import os
import sysconfig
import tokenize
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from milepost.errors import UsageError

TRAIN, VALIDATION, TEST = "train", "validation", "test"
SPLITS = (TRAIN, VALIDATION, TEST)
SEPARATOR = b"\n\n"
SUFFIXES = (".md", ".py", ".rst", ".txt")
PIECE = 2**16

_NOT_OF_THE_LIBRARY = {
    "__pycache__",
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idle_test",
}
_TOPICS = "pydoc_data/topics.py"
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

Documents = Iterable[tuple[str, bytes]]


def exists(corpus: str) -> bool:
    """Whether there is such a corpus; it is not read yet."""
    return corpus in _NAMED or Path(corpus).exists()


def load(corpus: str) -> Mapping[str, UInt8[np.ndarray, " N"]]:
    """The bytes of each split, read once in a process; a split may be empty.

    Whoever takes slices of these arrays need not know whether they are in memory, as they are now,
    or mapped from a file.

    Raises:
        UsageError: a file cannot be read or is not UTF-8, or there is no text at all.
    """
    return _load(corpus if corpus in _NAMED else str(Path(corpus).resolve()))


@lru_cache(maxsize=8)
def _load(corpus: str) -> Mapping[str, UInt8[np.ndarray, " N"]]:
    try:
        split = _NAMED[corpus]() if corpus in _NAMED else of_path(Path(corpus))
    except OSError as error:
        raise UsageError(
            f"corpus: cannot read {error.filename or corpus} ({error.strerror}): give the path of "
            f"text that can be read"
        ) from error
    texts = {name: [text for _, text in documents if text.strip()] for name, documents in split}
    if not any(texts.values()):
        raise UsageError(
            f"corpus: expected text, got {corpus} without any: give a folder of "
            f"{', '.join(SUFFIXES)} files, or a file"
        )
    return {
        name: np.frombuffer(SEPARATOR.join(found), dtype=np.uint8) for name, found in texts.items()
    }


def split_of(name: str) -> str:
    """The split of a document, by its name alone."""
    share = int.from_bytes(sha256(os.fsencode(name)).digest()[:4], "big") / 2**32
    return TRAIN if share < 0.9 else VALIDATION if share < 0.95 else TEST


def by_name(documents: Documents) -> list[tuple[str, list[tuple[str, bytes]]]]:
    """The documents of each split."""
    found: dict[str, list[tuple[str, bytes]]] = {split: [] for split in SPLITS}
    for name, text in documents:
        found[split_of(name)].append((name, text))
    return list(found.items())


def of_path(path: Path) -> list[tuple[str, list[tuple[str, bytes]]]]:
    """The documents of each split of a file or folder."""
    if not path.is_dir():
        return by_name(pieces(path))
    published = {split: _published(path, split) for split in SPLITS}
    if all(published.values()):
        return [(split, list(files(part))) for split, part in published.items() if part]
    if published[TRAIN] and published[TEST]:
        raise UsageError(
            f"corpus: {path} has {TRAIN} and {TEST} but no {VALIDATION}, and must not mix them: "
            f"name the third part {VALIDATION}, or give a folder without such names"
        )
    return by_name(files(path))


def _published(folder: Path, split: str) -> Path | None:
    """The part of a folder that its authors call by the name of the split."""
    part, text = folder / split, folder / f"{split}.txt"
    if part.is_dir():
        return part
    return text if text.is_file() else None


def files(path: Path) -> Iterator[tuple[str, bytes]]:
    """The text files in a folder and below, hidden ones left out; or the one file."""
    if path.is_file():
        yield path.name, utf8(path)
        return
    for name, file in walk(path, lambda entry: not entry.startswith(".")):
        if file.suffix in SUFFIXES:
            yield name, utf8(file)


def pieces(path: Path) -> Iterator[tuple[str, bytes]]:
    """A file cut after the last line end of every `PIECE` bytes."""
    text, first = utf8(path), 0
    while first < len(text):
        last = first + PIECE
        if last < len(text):
            last = text.rfind(b"\n", first, last) + 1 or last
        yield f"{path.name}#{first}", text[first:last]
        first = last


def utf8(path: Path) -> bytes:
    """The bytes of a file, if they are UTF-8."""
    text = path.read_bytes()
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"corpus: expected UTF-8, got byte {error.start} of {path}, which is not: convert the "
            f"file, or leave it out"
        ) from error
    return text


def walk(folder: Path, wanted: Callable[[str], bool]) -> list[tuple[str, Path]]:
    """The files below a folder by their names relative to it, in the order of those names."""
    found = []
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if wanted(name)]
        paths = (Path(where, name) for name in names if wanted(name))
        found += [(path.relative_to(folder).as_posix(), path) for path in paths]
    return sorted(found)


def standard_library() -> Iterator[tuple[str, str]]:
    """Name and source of each module of the running Python's standard library."""

    def wanted(name: str) -> bool:
        return name not in _NOT_OF_THE_LIBRARY and not name.startswith("_sysconfigdata")

    for name, path in walk(Path(sysconfig.get_path("stdlib")), wanted):
        if path.suffix == ".py":
            with tokenize.open(path) as source:
                yield name, source.read()


def code() -> Iterator[tuple[str, bytes]]:
    """The documents of `python-code`."""
    return ((name, source.encode()) for name, source in standard_library() if name != _TOPICS)


def prose() -> Iterator[tuple[str, bytes]]:
    """The documents of `python-prose`."""
    for name, source in standard_library():
        if name == _TOPICS:
            for topic, text in sorted(topics(source).items()):
                yield f"{name}#{topic}", text.encode()
        else:
            # a docstring may write what UTF-8 cannot: half a surrogate pair
            yield name, docstrings(source).encode(errors="backslashreplace")


def docstrings(source: str) -> str:
    """The documentation strings of a module in the order of the source, without indentation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as one of an escape that a later Python refuses
        tree = ast.parse(source)
    documented = [node for node in ast.walk(tree) if isinstance(node, _DOCUMENTED)]
    documented.sort(key=lambda node: 0 if isinstance(node, ast.Module) else node.lineno)
    found = (ast.get_docstring(node) for node in documented)
    return SEPARATOR.decode().join(text for text in found if text)


def topics(source: str) -> dict[str, str]:
    """What `pydoc_data.topics` assigns: a text for each topic of `help()`."""
    (assigned,) = [node for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    found: dict[str, str] = ast.literal_eval(assigned.value)
    return found


_NAMED: dict[str, Callable[[], list[tuple[str, list[tuple[str, bytes]]]]]] = {
    "python-code": lambda: by_name(code()),
    "python-prose": lambda: by_name(prose()),
}
NAMES = tuple(_NAMED)
