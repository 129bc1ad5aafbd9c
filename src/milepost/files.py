"""Files written whole or not at all, and read with errors that name the remedy.

A reader of a path written here finds the old content or the new, never a part of either, whenever
the writer dies: the bytes go to a temporary file in the same folder, are forced to the disk, and
take the name by one `os.replace`.
"""

import errno
import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from milepost.errors import UsageError

# the temporary files' ending, for whoever tidies up after a process that was killed
PARTIAL = ".partial"

REMEDIES = {
    errno.ENOSPC: "free some space, or choose a path on another disk",
    errno.EDQUOT: "free some of your quota, or choose a path on another disk",
    errno.EACCES: "choose a path that you may write to",
    errno.EPERM: "choose a path that you may write to",
    errno.EROFS: "choose a path that you may write to",
    errno.ENOTDIR: "a part of the path is a file: choose another path",
    errno.EEXIST: "a part of the path is a file: choose another path",
    errno.EISDIR: "the path is a folder: name a file in it",
    errno.ENAMETOOLONG: "choose a shorter path",
}


def cannot_write(path: Path, error: OSError) -> UsageError:
    """The error for a path that the system would not let us write."""
    remedy = REMEDIES.get(error.errno or 0, "check the path and the disk it is on")
    return UsageError(f"cannot write {path}: {error.strerror or error}; {remedy}")


def cannot_read(path: Path, error: OSError) -> UsageError:
    """The error for a path that the system would not let us read."""
    return UsageError(
        f"cannot read {path}: {error.strerror or error}; check the path, and that it may be read"
    )


def write_whole(path: Path, writer: Callable[[BinaryIO], object]) -> None:
    """Write what `writer` writes, whole or not at all; folders on the way are made."""
    # the process and thread are in the name, so that two writers of one path do not mix
    owner = f"{os.getpid()}-{threading.get_ident()}"
    partial = path.with_name(f".{path.name}.{owner}{PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(partial, "wb") as file:
                writer(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        force_to_disk(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error


def force_to_disk(path: Path) -> None:
    """A file's bytes, or a folder's entries: until then a power cut may undo a new name."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write `text` in UTF-8."""
    write_whole(path, lambda file: file.write(text.encode()))


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON; a number that JSON cannot hold (NaN, infinity) is refused."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The value in the JSON file at `path`."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise cannot_read(path, error) from error
    except ValueError as error:
        raise UsageError(
            f"{path} is damaged, it is not JSON ({error}); restore it from a copy, or delete it "
            "and make it again"
        ) from error


def read_object(path: Path, names: Iterable[str]) -> dict[str, Any]:
    """The JSON object in the file at `path`, which must have these names."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise UsageError(
            f"{path} is damaged, it is no JSON object; restore it from a copy, or delete it and "
            "make it again"
        )
    if missing := [name for name in names if name not in value]:
        raise UsageError(
            f"{path} is damaged, {', '.join(missing)} is missing; restore it from a copy, or "
            "delete it and make it again"
        )
    return value


def digest(values: Mapping[str, Any]) -> str:
    """16 hexadecimal digits that stand for plain values, whatever the order of their keys.

    Files are named after what decides their content.
    """
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return sha256(canonical.encode()).hexdigest()[:16]
