"""Folders that are written whole or not at all."""

import os
from multiprocessing import Process
from pathlib import Path

import pytest

from milepost.errors import UsageError
from milepost.hf.folders import written_whole


def contents(folder: Path) -> dict[str, str]:
    """The files below a folder, hidden ones too."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def test_a_folder_takes_its_name_when_it_is_complete(tmp_path: Path) -> None:
    out = tmp_path / "on/the/way"
    with written_whole(out) as partial:
        (partial / "deep").mkdir()
        (partial / "deep/file").write_text("new")
        assert not out.exists()
        assert partial.parent == out.parent
    assert contents(tmp_path) == {"on/the/way/deep/file": "new"}


@pytest.mark.parametrize("replace", [False, True])
def test_what_breaks_off_leaves_what_was_there(replace: bool, tmp_path: Path) -> None:
    out = tmp_path / "out"
    if replace:
        out.mkdir()
        (out / "file").write_text("old")
    before = contents(tmp_path)

    def broken(error: BaseException) -> None:
        with written_whole(out, replace=replace) as partial:
            (partial / "file").write_text("new")
            raise error

    with pytest.raises(KeyboardInterrupt):
        broken(KeyboardInterrupt())
    with pytest.raises(OSError, match="of another library"):
        broken(OSError("of another library"))
    with pytest.raises(UsageError, match=r"cannot write .*out: No space.*free some space"):
        broken(OSError(28, "No space left on device"))
    assert contents(tmp_path) == before
    assert os.listdir(tmp_path) == (["out"] if replace else [])


def test_one_folder_takes_the_place_of_another_only_if_told(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/old").write_text("old")
    out.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="out exists already"), written_whole(out):
        pass
    with written_whole(out, replace=True) as partial:
        (partial / "new").write_text("new")
    assert out.is_symlink()
    assert contents(tmp_path / "elsewhere") == {"new": "new"}
    assert sorted(os.listdir(tmp_path)) == ["elsewhere", "out"]


def test_a_folder_that_appears_meanwhile_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def overtaken() -> None:
        with written_whole(out) as partial:
            (partial / "file").write_text("ours")
            out.mkdir()
            (out / "file").write_text("theirs")

    with pytest.raises(UsageError, match="out exists already"):
        overtaken()
    assert contents(tmp_path) == {"out/file": "theirs"}


def test_a_path_through_a_file_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(UsageError, match="a part of the path is a file"),
        written_whole(tmp_path / "file/out"),
    ):
        pass


def write_many(out: Path, word: str) -> None:
    for _ in range(60):
        with written_whole(out, replace=True) as partial:
            (partial / "one").write_text(word)
            (partial / "two").write_text(word)


def test_writers_of_one_folder_do_not_mix_and_it_is_never_absent(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_many(out, "first")
    writers = [Process(target=write_many, args=(out, word)) for word in ("left", "right")]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        held = os.open(out, os.O_RDONLY)  # whatever has the name at this moment
        os.close(held)
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    found = contents(out)
    assert found in ({"one": "left", "two": "left"}, {"one": "right", "two": "right"})
    assert os.listdir(tmp_path) == ["out"]


def test_others_may_read_what_a_library_wrote_for_its_owner(tmp_path: Path) -> None:
    with written_whole(tmp_path / "out") as partial:
        (partial / "file").touch(mode=0o600)
    usual = tmp_path / "usual"
    usual.touch()
    assert (tmp_path / "out/file").stat().st_mode == usual.stat().st_mode
