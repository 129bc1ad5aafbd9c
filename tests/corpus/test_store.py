"""Mapped corpora: the same bytes as in memory, written once, whole or not at all."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from milepost import corpus
from milepost.corpus import store
from milepost.errors import UsageError

BYTES = np.dtype(np.uint8)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MILEPOST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def many(folder: Path) -> str:
    folder.mkdir()
    for n in range(60):
        (folder / f"{n:03}.txt").write_text(f"<{n:03}>")
    return str(folder)


def test_mapped_or_in_memory_the_bytes_are_the_same(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, big = many(tmp_path / "small"), many(tmp_path / "big")
    held = corpus.load(small)
    assert not cache.exists()
    monkeypatch.setattr(store, "SMALL", 100)
    mapped = corpus.load(big)
    assert isinstance(mapped["train"], np.memmap)
    assert {split: text.tobytes() for split, text in mapped.items()} == {
        split: text.tobytes() for split, text in held.items()
    }
    with pytest.raises(ValueError, match="read-only"):
        mapped["train"][0] = 0


def test_a_corpus_is_written_once_and_again_when_its_files_change(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SMALL", 0)
    folder = many(tmp_path / "text")
    for _ in range(2):
        corpus._load.cache_clear()
        first = corpus.load(folder)
        assert len(list((cache / "corpora").iterdir())) == 1
    (tmp_path / "text" / "000.txt").write_text("another text")
    corpus._load.cache_clear()
    assert corpus.load(folder)["train"].tobytes() != first["train"].tobytes()
    assert len(list((cache / "corpora").iterdir())) == 2


def test_an_error_on_the_way_leaves_nothing(cache: Path) -> None:
    def fails() -> Iterator[tuple[str, bytes]]:
        yield "train", b"half"
        raise UsageError("no more")

    with pytest.raises(UsageError, match="no more"):
        store.mapped({"a": 1}, BYTES, fails)
    assert list((cache / "corpora").iterdir()) == []
    found = store.mapped({"a": 1}, BYTES, lambda: [("train", b"whole"), ("train", b"!")])
    assert found["train"].tobytes() == b"whole!"
    assert len(found["test"]) == 0


def test_the_type_is_part_of_the_name(cache: Path) -> None:
    for dtype in (np.uint8, np.uint16):
        found = store.mapped({"a": 1}, np.dtype(dtype), lambda: [("test", b"\1\0\2\0")])
        assert found["test"].dtype == dtype
    assert found["test"].tolist() == [1, 2]


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MILEPOST_CACHE", str(tmp_path / "file"))
    with pytest.raises(UsageError, match=r"cannot write .*file"):
        store.mapped({"a": 1}, BYTES, lambda: [("train", b"a")])


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILEPOST_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert store.folder() == Path("/x/milepost")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert store.folder() == Path.home() / ".cache" / "milepost"
