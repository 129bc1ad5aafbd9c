"""The run directory, which belongs to one run at a time.

config.json          the settings, for people and for `read_settings`
metrics.jsonl        one line of JSON for each step
checkpoint.pt        `milepost.training.checkpoint`
shards-STEP/         its tensors, where several processes trained (`milepost.training.shards`)
nonfinite_batch.pt   the batch at which a run was given up
.lock                held while a run trains, with the number of its process
"""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from milepost.errors import UsageError
from milepost.files import PARTIAL, cannot_read, cannot_write, read_json
from milepost.training.settings import Settings

CONFIG = "config.json"
METRICS = "metrics.jsonl"
CHECKPOINT = "checkpoint.pt"
SHARDS = "shards-"
NONFINITE = "nonfinite_batch.pt"
LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder if need be, and hold it for this process.

    The lock is the system's own, released with the process however it ends: the file that stays
    behind blocks nobody.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        _take(folder, descriptor)
        yield
    finally:
        os.close(descriptor)


def _take(folder: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        # the lock is ours, so the process that began these is gone
        for leftover in folder.glob(f".{CHECKPOINT}.*{PARTIAL}"):
            leftover.unlink()
    except BlockingIOError as error:
        holder = os.read(descriptor, 32).decode().strip() or "another run"
        raise UsageError(
            f"{folder} is in use by process {holder}: wait for it, stop it, or choose another --out"
        ) from error
    except OSError as error:
        raise cannot_write(folder, error) from error


def clear_shards(folder: Path, keep: str | None = None) -> None:
    """Remove the shards of all checkpoints but one."""
    for shards in folder.glob(f"{SHARDS}*"):
        if shards.name != keep:
            shutil.rmtree(shards, ignore_errors=True)


def refuse_existing(folder: Path) -> None:
    """Raise a `UsageError` if a run, or files that it would overwrite, are in the folder."""
    for name in (CHECKPOINT, METRICS, CONFIG):
        if (folder / name).exists():
            raise UsageError(
                f"{folder} already holds {name}: pass --resume to continue that run, or choose "
                "another --out"
            )


def read_settings(folder: Path) -> Settings:
    """The settings of the run in the folder."""
    path = folder / CONFIG
    if not path.exists():
        raise UsageError(
            f"{folder} is no run directory, {CONFIG} is missing: give that of a run of `milepost "
            "train`"
        )
    values = read_json(path)
    if not isinstance(values, dict):
        raise UsageError(f"{path} is damaged, it holds no settings: restore it from a copy")
    return Settings.from_dict(values)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics of the run in the folder, up to one that is being written."""
    path = folder / METRICS
    try:
        lines = path.read_bytes().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith(b"\n")]
    except OSError as error:
        raise cannot_read(path, error) from error
    except ValueError as error:
        raise UsageError(
            f"{path} is damaged ({error}): restore it from a copy, or train again into another "
            "folder"
        ) from error


class Metrics:
    """The file of metrics, which grows by a whole line or not at all."""

    def __init__(self, path: Path, step: int) -> None:
        """Open the file for the steps after `step`; lines that lie beyond are cut off."""
        self.path = path
        try:
            self.file = open(path, "a+b", buffering=0)  # noqa: SIM115, it outlives the method
            self.size = _length_up_to(path, step)
            self.file.truncate(self.size)
        except OSError as error:
            raise cannot_write(path, error) from error

    def append(self, values: Mapping[str, Any]) -> None:
        """Add one line."""
        line = json.dumps(values, allow_nan=False).encode() + b"\n"
        try:
            written = self.file.write(line)
            if written != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self.file.truncate(self.size)
            raise cannot_write(self.path, error) from error
        self.size += len(line)

    def sync(self) -> None:
        """Force the lines to the disk, so that a checkpoint never outlives those before it."""
        try:
            os.fsync(self.file.fileno())
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def _length_up_to(path: Path, step: int) -> int:
    """How many bytes the whole lines of the first `step` steps take."""
    length = 0
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            if json.loads(line)["step"] > step or not line.endswith(b"\n"):
                break
        except (ValueError, KeyError, TypeError):
            break
        length += len(line)
    return length
