"""Text in files: a folder of them, one file, or the files of WikiText as they are published.

WikiText's are `wiki.train.tokens`, `wiki.valid.tokens` and `wiki.test.tokens`, or else `.raw`. An
article begins with its title, ` = Title = `, between blank lines; articles are the documents, laid
end to end with nothing in between, so that a whole part is its file to the byte.

Source: WikiText, Merity et al. 2016, arXiv:1609.07843.
"""

import io
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from milepost.corpus.splits import (
    SPLITS,
    TEST,
    TRAIN,
    VALIDATION,
    Assigned,
    by_split,
    published,
    unassigned,
)
from milepost.errors import UsageError

SUFFIXES = (".md", ".py", ".rst", ".txt")
PIECE = 2**16

WIKITEXT = {TRAIN: "wiki.train", VALIDATION: "wiki.valid", TEST: "wiki.test"}
_TITLE = re.compile(rb" = [^=].* = \n?")


def of_path(path: Path) -> list[tuple[str, list[tuple[str, bytes]]]]:
    """The documents of each split of a file or folder."""
    return by_split(assigned(path))


def assigned(path: Path) -> Assigned:
    """The same, one after the other."""
    if not path.is_dir():
        return unassigned(pieces(path))
    if parts := wikitext(path):
        return published({split: articles(io.BytesIO(utf8(p))) for split, p in parts.items()})
    if parts := parts_of(path):
        return published({split: files(part) for split, part in parts.items()})
    return unassigned(files(path))


def read(path: Path) -> list[Path]:
    """Which files that text is in."""
    if not path.is_dir():
        return [path]
    if parts := wikitext(path) or parts_of(path):
        return [file for part in parts.values() for file in read_below(part)]
    return read_below(path)


def parts_of(folder: Path) -> dict[str, Path]:
    """The parts of a folder that its authors have split into three; none of another folder."""
    parts = {split: part for split in SPLITS if (part := _part(folder, split))}
    if len(parts) == len(SPLITS):
        return parts
    if TRAIN in parts and TEST in parts:
        raise UsageError(
            f"corpus: {folder} has {TRAIN} and {TEST} but no {VALIDATION}, and must not mix them: "
            f"name the third part {VALIDATION}, or give a folder without such names"
        )
    return {}


def _part(folder: Path, split: str) -> Path | None:
    """The part of a folder that its authors call by the name of the split."""
    part, text = folder / split, folder / f"{split}.txt"
    if part.is_dir():
        return part
    return text if text.is_file() else None


def wikitext(folder: Path) -> dict[str, Path]:
    """The files of WikiText in a folder, by split; as many as there are."""
    for suffix in (".tokens", ".raw"):
        names = {split: folder / f"{name}{suffix}" for split, name in WIKITEXT.items()}
        if parts := {split: path for split, path in names.items() if path.is_file()}:
            return parts
    return {}


def articles(lines: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """The articles of WikiText's lines, each with the blank line before its title.

    A title stands between blank lines: a formula that was broken into lines looks like one, too.
    """
    title, found = "", list[bytes]()
    for line in lines:
        found.append(line)
        if len(found) < 3 or line.strip() or found[-3].strip() or not _TITLE.fullmatch(found[-2]):
            continue
        if b"".join(found[:-3]).strip():
            yield title, b"".join(found[:-3])
            found = found[-3:]
        title = found[-2].decode().strip(" =\n")
    if found:
        yield title, b"".join(found)


def files(path: Path) -> Iterator[tuple[str, bytes]]:
    """The text files in a folder and below, hidden ones left out; or the one file."""
    if path.is_file():
        yield path.name, utf8(path)
        return
    for file in read_below(path):
        yield file.relative_to(path).as_posix(), utf8(file)


def read_below(path: Path) -> list[Path]:
    """The paths of these, in the order of their names."""
    if not path.is_dir():
        return [path]
    found = walk(path, lambda entry: not entry.startswith("."))
    return [file for _, file in found if file.suffix in SUFFIXES]


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
