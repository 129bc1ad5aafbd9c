"""The run directory: one run at a time, and metrics in whole lines."""

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from milepost.errors import UsageError
from milepost.training.rundir import (
    Metrics,
    locked,
    read_metrics,
    read_settings,
    refuse_existing,
)

HOLDER = """
import sys
from pathlib import Path
from milepost.training.rundir import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_told_who_holds_the_directory(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        in_use = rf"in use by process {holder.pid}: .*another --out"
        with pytest.raises(UsageError, match=in_use), locked(tmp_path):
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()
    # killed, it left its number behind, and that blocks nobody
    assert (tmp_path / ".lock").read_text() == f"{holder.pid}\n"
    with locked(tmp_path):
        pass


def test_a_second_run_of_the_same_process_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(UsageError, match="in use"), locked(tmp_path):
        pass


def test_what_a_killed_run_left_half_written_is_cleared_away(tmp_path: Path) -> None:
    for name in (".checkpoint.pt.1-2.partial", ".mine.partial", "checkpoint.pt"):
        (tmp_path / name).touch()
    with locked(tmp_path):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".lock",
        ".mine.partial",
        "checkpoint.pt",
    ]


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot write .*a part of the path is a file"):
        locked(tmp_path / "file" / "run").__enter__()


@pytest.mark.parametrize("name", ["checkpoint.pt", "metrics.jsonl", "config.json"])
def test_nothing_that_exists_is_overwritten(name: str, tmp_path: Path) -> None:
    refuse_existing(tmp_path)
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match=f"already holds {name}: pass --resume"):
        refuse_existing(tmp_path)


def test_a_directory_without_settings(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no run directory, config\.json is missing"):
        read_settings(tmp_path)


@pytest.mark.parametrize("content", ["[]", "{", '{"task": "flip-flop"}'])
def test_damaged_settings(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UsageError, match=r"is damaged|is missing from the settings"):
        read_settings(tmp_path)


def lines(*steps: int) -> bytes:
    return b"".join(json.dumps({"step": step}).encode() + b"\n" for step in steps)


@pytest.mark.parametrize(
    ("before", "step", "after"),
    [
        (b"", 0, b""),
        (lines(1, 2, 3), 3, lines(1, 2, 3)),
        (lines(1, 2, 3), 1, lines(1)),
        (lines(1, 2, 3), 0, b""),
        (lines(1, 2) + b'{"step": 3', 3, lines(1, 2)),
        (lines(1, 2) + b'{"step": 3}', 3, lines(1, 2)),
        (lines(1) + b"\x00\x00\x00\n" + lines(3), 3, lines(1)),
        (lines(1) + b"[]\n" + lines(3), 3, lines(1)),
    ],
)
def test_lines_beyond_the_step_are_cut_off(
    before: bytes, step: int, after: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(before)
    metrics = Metrics(path, step)
    assert path.read_bytes() == after
    metrics.append({"step": step + 1})
    metrics.sync()
    metrics.close()
    assert path.read_bytes() == after + lines(step + 1)


class Disk:
    """An open file on a disk with room for so many bytes."""

    def __init__(self, file: Any, room: int, silent: bool) -> None:
        self.file, self.room, self.silent = file, room, silent

    def write(self, line: bytes) -> int:
        if len(line) > self.room and not self.silent:
            raise OSError(errno.EDQUOT, "Disk quota exceeded")
        return int(self.file.write(line[: self.room]))

    def truncate(self, size: int) -> int:
        return int(self.file.truncate(size))

    def close(self) -> None:
        self.file.close()


@pytest.mark.parametrize("silent", [True, False])
def test_a_line_that_does_not_fit_is_not_there(silent: bool, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(path, 0)
    metrics.append({"step": 1})
    metrics.file = Disk(metrics.file, 5, silent)  # type: ignore[assignment]
    with pytest.raises(UsageError, match=r"cannot write .*metrics\.jsonl.*; free some"):
        metrics.append({"step": 2})
    metrics.close()
    assert path.read_bytes() == lines(1)


def test_metrics_are_read_up_to_the_line_being_written(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(lines(1, 2) + b'{"st')
    assert read_metrics(tmp_path) == [{"step": 1}, {"step": 2}]


def test_metrics_that_are_missing_or_damaged(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        read_metrics(tmp_path)
    (tmp_path / "metrics.jsonl").write_bytes(b"\x00\n")
    with pytest.raises(UsageError, match="is damaged"):
        read_metrics(tmp_path)
