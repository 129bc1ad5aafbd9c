"""Datasets: copies of every form say the same, and the Hub is asked for what it has."""

import gzip
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milepost import corpus
from milepost.corpus import huggingface
from milepost.errors import UsageError

TEXTS = {
    "train": ["one", "zwei\nlines", "  ", "drei ß"],
    "validation": ["vier"],
    "test": ["fünf", "six"],
}
JOINED = {
    split: "\n\n".join(t for t in texts if t.strip()).encode() for split, texts in TEXTS.items()
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MILEPOST_CACHE", str(tmp_path / "cache"))
    corpus._load.cache_clear()
    return tmp_path / "cache"


def loaded(name: object) -> dict[str, bytes]:
    return {split: text.tobytes() for split, text in corpus.load(f"hf:{name}").items()}


def lines(texts: list[str]) -> bytes:
    return b"".join(json.dumps({"text": text, "id": 1}).encode() + b"\n" for text in texts)


def save_to_disk(folder: Path) -> None:
    datasets = pytest.importorskip("datasets")
    whole = {split: datasets.Dataset.from_dict({"text": texts}) for split, texts in TEXTS.items()}
    datasets.DatasetDict(whole).save_to_disk(folder)


def parquet(folder: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    write = pytest.importorskip("pyarrow.parquet").write_table
    (folder / "data").mkdir(parents=True)
    for split, texts in TEXTS.items():
        for number, part in enumerate((texts[:1], texts[1:])):
            table = pyarrow.table({"text": pyarrow.array(part, pyarrow.string())})
            write(table, folder / "data" / f"{split}-{number:05}-of-00002.parquet")


def jsonl(folder: Path) -> None:
    folder.mkdir()
    names = {"train": "train", "validation": "valid", "test": "test"}
    for split, texts in TEXTS.items():
        (folder / f"{names[split]}.jsonl").write_bytes(lines(texts))


def zipped(folder: Path) -> None:
    for split, texts in TEXTS.items():
        (folder / split).mkdir(parents=True)
        for number, text in enumerate(texts):
            path = folder / split / f"proofpile_{number}.jsonl.gz"
            path.write_bytes(gzip.compress(lines([text])))


@pytest.mark.parametrize("write", [save_to_disk, parquet, jsonl, zipped])
def test_a_copy_is_read_in_whatever_form(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path / "copy")
    assert loaded(tmp_path / "copy") == JOINED
    assert isinstance(corpus.load(f"hf:{tmp_path}/copy")["train"], np.memmap)
    assert corpus.exists(f"hf:{tmp_path}/copy")


def test_only_the_first_rows_of_each_part(tmp_path: Path) -> None:
    jsonl(tmp_path / "copy")
    assert loaded(f"{tmp_path}/copy#2") == {
        "train": b"one\n\nzwei\nlines",
        "validation": b"vier",
        "test": "fünf\n\nsix".encode(),
    }
    for wrong in ("#", "#0", "#x"):
        with pytest.raises(UsageError, match="expected a number of rows above 0 after #"):
            corpus.load(f"hf:{tmp_path}/copy{wrong}")


def test_rows_that_nobody_has_split_are_split_by_number(tmp_path: Path) -> None:
    texts = [f"<{n}>" for n in range(200)]
    (tmp_path / "rows.jsonl").write_bytes(lines(texts))
    found = loaded(tmp_path / "rows.jsonl")
    assert sorted(b"\n\n".join(found.values()).decode().split("\n\n")) == sorted(texts)
    for split, text in found.items():
        assert all(corpus.split_of(f"#{row[1:-1]}") == split for row in text.decode().split("\n\n"))


def test_another_copy_under_the_path_is_read_anew(tmp_path: Path) -> None:
    jsonl(tmp_path / "copy")
    loaded(tmp_path / "copy")
    (tmp_path / "copy" / "test.jsonl").write_bytes(lines(["another"]))
    corpus._load.cache_clear()
    assert loaded(tmp_path / "copy")["test"] == b"another"


def test_half_a_surrogate_pair_is_written_as_json_has_it(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_bytes(b'{"text": "a\\ud800b"}\n')
    assert loaded(tmp_path)["test"] == b"a\\ud800b"


def test_wikitexts_rows_become_the_published_file(tmp_path: Path) -> None:
    published = b" \n = A = \n \n Of A . \n = = Section = = \n \n = B = \n \n Of B . \n \n"
    rows = [line.decode() if line.strip() else "" for line in published.splitlines(keepends=True)]
    assert rows[0] == ""
    folder = tmp_path / "wikitext-103"
    folder.mkdir()
    (folder / "test.jsonl").write_bytes(lines(rows))
    assert loaded(folder)["test"] == published
    assert corpus.line_ends_are_words(f"hf:{folder}")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.txt": b"plain"}, "expected a folder written by save_to_disk, or .parquet"),
        ({"train.jsonl": lines(["a"]), "b.jsonl": lines(["b"])}, "or of none, got b.jsonl"),
        ({"train.jsonl": b'{"content": "a", "id": 1}\n'}, "a column 'text' of strings .* id"),
        ({"train.jsonl": b'{"text": 3}\n'}, "expected a column 'text' of strings"),
        ({"train.jsonl": b'{"text": "a"}\n{"te'}, "one JSON object in each line, got line 2 of"),
        ({"train.jsonl": b""}, "expected text, got .* without any"),
        ({"train.jsonl.gz": b"no gzip"}, "corpus: cannot read"),
    ],
)
def test_what_cannot_be_read_is_named(
    files: dict[str, bytes], message: str, tmp_path: Path
) -> None:
    (tmp_path / "copy").mkdir()
    for name, content in files.items():
        (tmp_path / "copy" / name).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        loaded(tmp_path / "copy")
    left = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert "without any" in message or not left


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Stands in for the Hub, notes what it is asked, and has the texts."""
    datasets = pytest.importorskip("datasets")
    asked: list[tuple[Any, ...]] = []

    def rows(texts: list[str]) -> Iterator[dict[str, Any]]:
        return ({"text": text, "url": ""} for text in texts)

    def load_dataset(name: str, config: str | None, **options: Any) -> Any:
        asked.append((name, config, options))
        if name == "a/program" and "revision" not in options:
            raise RuntimeError("Dataset scripts are no longer supported, but found program.py")
        if name == "no/such":
            raise datasets.exceptions.DatasetNotFoundError("Dataset 'no/such' doesn't exist")
        if name == "allenai/c4":
            return {part: rows(TEXTS[part]) for part in ("train", "validation")}
        if name == "others":
            return {part: rows(TEXTS["test"]) for part in ("easy", "hard")}
        return {part: rows(texts) for part, texts in TEXTS.items()}

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return asked


def test_a_dataset_is_streamed_once(hub: list[tuple[Any, ...]]) -> None:
    assert corpus.exists("hf:emozilla/pg19")
    assert hub == []
    for _ in range(2):
        assert loaded("emozilla/pg19") == JOINED
        corpus._load.cache_clear()
    assert hub == [("emozilla/pg19", None, {"streaming": True})]


def test_of_c4_the_published_validation_is_the_test(hub: list[tuple[Any, ...]]) -> None:
    found = loaded("allenai/c4:en#2")
    assert hub == [("allenai/c4", "en", {"streaming": True})]
    assert found["test"] == b"vier"
    assert b"vier" not in found["train"] + found["validation"]


def test_of_a_program_the_conversion_is_taken(hub: list[tuple[Any, ...]]) -> None:
    assert loaded("a/program") == JOINED
    assert hub[-1] == ("a/program", None, {"streaming": True, "revision": "refs/convert/parquet"})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no/such", r"cannot load no/such here: Dataset 'no/such' .* give hf:PATH"),
        ("others", "expected parts named train, validation or test, got easy, hard"),
    ],
)
def test_what_the_hub_has_not_is_named(hub: list[tuple[Any, ...]], name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        loaded(name)


@pytest.mark.parametrize(
    ("package", "write", "name"),
    [("datasets", None, "emozilla/pg19"), ("zstandard", "train.jsonl.zst", "{}")],
)
def test_a_package_that_is_missing_is_named(
    package: str,
    write: str | None,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    if write:
        (tmp_path / write).write_bytes(b"")
    with pytest.raises(UsageError, match=f"needs {package}, which is not installed"):
        loaded(name.format(tmp_path))


@pytest.mark.parametrize("name", ["hf:", "hf:a/b/c", "hf:no/such/folder/", "hf:a b"])
def test_what_can_be_no_dataset(name: str) -> None:
    assert not corpus.exists(name)


def test_a_copy_is_the_same_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jsonl(tmp_path / "copy")
    monkeypatch.chdir(tmp_path)
    assert corpus.resolved("hf:copy#3") == f"hf:{tmp_path.resolve()}/copy#3"
    assert corpus.resolved("hf:allenai/c4:en#3") == "hf:allenai/c4:en#3"
    assert huggingface.exists("hf:copy")
