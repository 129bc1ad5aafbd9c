"""Datasets of Hugging Face as corpora: by their names on the Hub, or from a copy on this machine.

    hf:NAME[:CONFIG][#COUNT]    hf:Salesforce/wikitext:wikitext-103-raw-v1
                                hf:allenai/c4:en#100000
                                hf:emozilla/pg19
                                hf:hoskinson-center/proof-pile
    hf:PATH[#COUNT]             a folder written by `save_to_disk`, or one of .parquet, .jsonl or
                                .json.gz files (.jsonl.gz, .jsonl.zst, .json.zst), or one such file

A row is a document, its column `text`; COUNT takes only the first so many rows of each part, for C4
has more of them than a disk has room for. A dataset on the Hub is streamed, once, into a file of
ours (`milepost.corpus.store`); a copy is read without a network. In files the part is named by a
word of the path, as in `train-00000-of-00010.parquet` or `c4-validation.00000-of-00008.json.gz`.

The rows of WikiText, which is known by its name, are lines, and its blank lines are rows without
text: they are put together again to what the published file has, to the byte.

A dataset that consists of a program, as deepmind/pg19 and hoskinson-center/proof-pile do, is no
longer run by `datasets`; then the Hub's own conversion to parquet is asked for. Where there is
none, download its files and give their path.
"""

import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

from milepost.corpus.folders import articles, walk
from milepost.corpus.source import Source
from milepost.corpus.splits import (
    SEPARATOR,
    TEST,
    TRAIN,
    VALIDATION,
    Documents,
    published,
    unassigned,
)
from milepost.errors import UsageError

PREFIX = "hf:"
FILES = (".parquet", ".jsonl", ".jsonl.gz", ".json.gz", ".jsonl.zst", ".json.zst")
COLUMN = "text"
CONVERTED = "refs/convert/parquet"

_WORDS = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("validation", "valid", "val", "dev"), VALIDATION),
    TEST: TEST,
}
_ON_THE_HUB = re.compile(r"[\w.-]+(/[\w.-]+)?(:[\w.-]+)?")

Rows = Mapping[str, Iterable[str]]
"""The texts of each part. The part "" is one that nobody has split."""


def exists(corpus: str) -> bool:
    """Whether there is such a copy, or could be such a dataset: the Hub is not asked."""
    place, _ = _limited(corpus)
    found = bool(place) and Path(place).exists()
    return found or _ON_THE_HUB.fullmatch(place) is not None


def source(corpus: str) -> Source:
    """The corpus of that name."""
    place, count = _limited(corpus)
    path = Path(place)
    if path.exists():
        identity: dict[str, Any] = {"copy": [*_fingerprint(path)]}
        rows = partial(copied, path)
    else:
        name, _, config = place.partition(":")
        identity = {"dataset": name, "config": config}
        rows = partial(streamed, name, config or None)
    lines = "wikitext" in place.lower()

    def documents(part: str, texts: Iterable[str]) -> Documents:
        # JSON can say what UTF-8 cannot: half a surrogate pair
        found = (text.encode(errors="backslashreplace") for text in islice(texts, count))
        if lines:
            return articles(line or b" \n" for line in found)
        return ((f"{part}#{number}", text) for number, text in enumerate(found))

    def assigned() -> Iterator[tuple[str, str, bytes]]:
        parts = {part: documents(part, texts) for part, texts in rows().items()}
        return unassigned(parts[""]) if "" in parts else published(parts)

    return Source(
        assigned,
        {**identity, "count": count},
        size=None,
        between=b"" if lines else SEPARATOR,
        line_ends=lines,
    )


def _limited(corpus: str) -> tuple[str, int | None]:
    """The path or name, and how many rows."""
    place, hash_sign, count = corpus.removeprefix(PREFIX).partition("#")
    if hash_sign and not (count.isdecimal() and int(count)):
        raise UsageError(
            f"corpus: expected a number of rows above 0 after #, got {corpus}: write it as "
            f"{PREFIX}{place}#100000, or leave it out for all of them"
        )
    return place, int(count) if count else None


def streamed(name: str, config: str | None) -> Rows:
    """The texts of a dataset on the Hub, read as they come."""
    load = _datasets("load_dataset")
    try:
        try:
            found = load(name, config, streaming=True)
        except RuntimeError as error:
            if "scripts are no longer supported" not in str(error):
                raise
            found = load(name, config, streaming=True, revision=CONVERTED)
    except (OSError, RuntimeError, ValueError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UsageError(
            f"corpus: datasets.load_dataset cannot load {name} "
            f"{f'({config}) ' if config else ''}here: {reason}; check the name and the network, or "
            f"download its files and give {PREFIX}PATH"
        ) from error
    return _parts({part: _texts(rows, f"{name}, {part}") for part, rows in found.items()})


def copied(path: Path) -> Rows:
    """The texts of a copy on this machine."""
    if (path / "dataset_dict.json").is_file():
        found = _datasets("load_from_disk")(str(path))
        return _parts({part: _texts(rows, f"{path}, {part}") for part, rows in found.items()})
    if (path / "state.json").is_file():
        return {"": _texts(_datasets("load_from_disk")(str(path)), str(path))}
    base = path if path.is_dir() else path.parent
    files = [file for file in _files(path) if file.name.endswith(FILES)]
    if not files:
        raise UsageError(
            f"corpus: expected a folder written by save_to_disk, or {', '.join(FILES)} files, got "
            f"{path} without any: give their folder, or for plain text the path without {PREFIX}"
        )
    parts: dict[str, list[Path]] = {}
    for file in files:
        parts.setdefault(_part_of(file.relative_to(base)), []).append(file)
    if "" in parts and len(parts) > 1:
        raise UsageError(
            f"corpus: expected train, validation or test in the name of every file of {path} or of "
            f"none, got {parts[''][0].name}: rename it, or take it away"
        )
    return {part: _of_files(found) for part, found in parts.items()}


def _parts(found: dict[str, Iterable[str]]) -> Rows:
    """The parts under our names; one alone by another name is one that nobody has split."""
    known = {split: rows for part, rows in found.items() if (split := _WORDS.get(part))}
    if known or not found:
        return known
    if len(found) > 1:
        raise UsageError(
            f"corpus: expected parts named train, validation or test, got {', '.join(found)}: save "
            f"the one you want by save_to_disk, and give its path"
        )
    return {"": next(iter(found.values()))}


def _part_of(file: Path) -> str:
    """The part that a path names: in the file's name, or else in the nearest folder's."""
    for name in reversed(file.parts):
        for word in re.split(r"[^a-z]+", name.lower()):
            if word in _WORDS:
                return _WORDS[word]
    return ""


def _texts(rows: Iterable[Mapping[str, Any]], where: object) -> Iterator[str]:
    for row in rows:
        text = row.get(COLUMN)
        if not isinstance(text, str):
            raise UsageError(
                f"corpus: expected a column {COLUMN!r} of strings in {where}, got the columns "
                f"{', '.join(row)}: rename the one that is meant"
            )
        yield text


def _of_files(files: Iterable[Path]) -> Iterator[str]:
    for file in files:
        yield from _texts(_parquet(file) if file.suffix == ".parquet" else _json(file), file)


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    parquet = _module("pyarrow.parquet", "pyarrow")
    with parquet.ParquetFile(path) as file:
        columns = [COLUMN] if COLUMN in file.schema_arrow.names else None
        for batch in file.iter_batches(batch_size=1024, columns=columns):
            yield from batch.to_pylist()


def _json(path: Path) -> Iterator[dict[str, Any]]:
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise UsageError(
                    f"corpus: expected one JSON object in each line, got line {number} of {path} "
                    f"({error}): mend it, or download the file again"
                ) from error
            yield row if isinstance(row, dict) else {}


def _opened(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path))
    if path.suffix == ".zst":
        try:
            opened: IO[bytes] = import_module("compression.zstd").open(path)
        except ImportError:  # before Python 3.14
            opened = _module("zstandard", "zstandard").open(path, "rb")
        return opened
    return path.open("rb")


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return [file for _, file in walk(path, lambda entry: not entry.startswith("."))]


def _fingerprint(path: Path) -> Iterator[tuple[str, int, int]]:
    for file in _files(path):
        found = file.stat()
        yield str(file.resolve()), found.st_size, found.st_mtime_ns


def _datasets(function: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(_module("datasets", "datasets"), function)
    return found


def _module(name: str, package: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UsageError(
            f"corpus: this needs {package}, which is not installed here: "
            f"pip install 'milepost[text]'{'' if package != 'zstandard' else ' zstandard'}"
        ) from error
