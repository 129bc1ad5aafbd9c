"""A folder written whole or not at all, as `milepost.files` writes a file."""

import ctypes
import errno
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from milepost.errors import UsageError
from milepost.files import PARTIAL, cannot_write, force_to_disk


@contextmanager
def written_whole(folder: Path, *, replace: bool = False) -> Iterator[Path]:
    """An empty folder to write in, which takes the name `folder` at the end.

    With an error in between, what has the name stays as it is.

    Args:
        folder: its name; folders on the way are made.
        replace: whether to put it in the place of a folder that is there.

    Raises:
        UsageError: something has the name already, or the system would not let us write.
    """
    if not replace:
        refuse_existing(folder)
    folder = Path(os.path.realpath(folder))
    # the process and thread are in the name, so that two writers of one path do not mix
    owner = f"{os.getpid()}-{threading.get_ident()}"
    partial = folder.with_name(f".{folder.name}.{owner}{PARTIAL}")
    try:
        partial.mkdir(parents=True)
        try:
            yield partial
            readable = partial.stat().st_mode & 0o666
            for path in (*partial.rglob("*"), partial):
                if path.is_file():
                    path.chmod(readable)  # some libraries write for the owner alone
                force_to_disk(path)
            if not replace:
                refuse_existing(folder)
            put(partial, folder)
            force_to_disk(folder.parent)
        finally:
            # after an exchange this is what had the name before
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        if error.errno is None:  # not the system's: the Hub's, for example
            raise
        raise cannot_write(folder, error) from error


def put(partial: Path, folder: Path) -> None:
    """Give a folder its name. What has the name takes the other in the same moment, on Linux."""
    while failure := exchange(partial, folder):
        if failure != errno.ENOENT:  # names cannot be exchanged here
            shutil.rmtree(folder, ignore_errors=True)
        try:
            os.rename(partial, folder)
            return
        except OSError as error:
            # another writer was first
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def exchange(one: Path, other: Path) -> int:
    """Exchange two names at once; the number of the system's error, 0 for none."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return errno.ENOENT if not other.exists() else errno.ENOSYS
    here, both = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    done: int = call(here, os.fsencode(one), here, os.fsencode(other), both)
    return 0 if done == 0 else ctypes.get_errno()


def refuse_existing(folder: Path) -> None:
    """A `UsageError` if anything has the name already."""
    if os.path.lexists(folder):
        raise UsageError(f"{folder} exists already, and is left as it is: choose another folder")
