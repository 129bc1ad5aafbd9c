"""Files are whole or not there, and a failure says what to do."""

import errno
import json
import os
from pathlib import Path

import pytest

from milepost.errors import UsageError
from milepost.files import read_json, read_object, write_json, write_whole


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_folders_on_the_way_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.txt"
    write_whole(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"new"
    assert names(path.parent) == ["c.txt"]


def test_a_file_has_the_permissions_of_any_other(tmp_path: Path) -> None:
    write_whole(tmp_path / "ours", lambda file: file.write(b""))
    (tmp_path / "any").touch()
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "any").stat().st_mode


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, function, full)
    with pytest.raises(UsageError, match=r"cannot write .*file: No space left.*; free some space"):
        write_whole(path, lambda file: file.write(b"new"))
    assert names(tmp_path) == ["file"]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_a_writer_that_fails_leaves_the_old_file(
    error: type[BaseException], tmp_path: Path
) -> None:
    def writer(file: object) -> None:
        raise error

    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(error):
        write_whole(path, writer)
    assert names(tmp_path) == ["file"]
    assert path.read_bytes() == b"old"


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="a part of the path is a file"):
        write_json(tmp_path / "file" / "x.json", {})


def test_a_folder_in_the_place_of_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the path is a folder"):
        write_json(tmp_path, {})
    assert names(tmp_path) == []


@pytest.mark.parametrize("value", [{"a": [1, 2.5, None, "σ"]}, [], "text"])
def test_json_round_trip(value: object, tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == value


def test_json_has_no_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "x.json", {"loss": float("nan")})
    assert names(tmp_path) == []


def test_json_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*x\.json: No such file"):
        read_json(tmp_path / "x.json")


@pytest.mark.parametrize("content", [b"", b'{"a": 1', b"\xff\xfe"])
def test_json_that_is_damaged(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"x\.json is damaged.*restore it"):
        read_json(tmp_path / "x.json")


def test_json_is_for_people_too(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": 1})
    text = (tmp_path / "x.json").read_text()
    assert text == '{\n  "a": 1\n}\n'
    assert json.loads(text) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "message"), [("[]", "no JSON object"), ("{}", "a, b is missing"), ("{", "not JSON")]
)
def test_an_object_has_its_names(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=rf"x\.json is damaged, .*{message}"):
        read_object(path, ["a", "b"])
    path.write_text('{"a": 1, "b": 2, "c": 3}')
    assert read_object(path, ["a", "b"]) == {"a": 1, "b": 2, "c": 3}
