"""A folder written whole or not at all, as `milepost.files` writes a file."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from milepost.errors import UsageError
from milepost.files import PARTIAL, cannot_write


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
    old = folder.with_name(f".{folder.name}.{owner}.old{PARTIAL}")
    try:
        partial.mkdir(parents=True)
        try:
            yield partial
            for path in (*partial.rglob("*"), partial):
                force_to_disk(path)
            if not replace:
                refuse_existing(folder)
            elif folder.exists():
                os.rename(folder, old)
            os.rename(partial, folder)
            force_to_disk(folder.parent)
        except BaseException:
            if old.exists() and not folder.exists():
                os.rename(old, folder)
            raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        if error.errno is None:  # not the system's: the Hub's, for example
            raise
        raise cannot_write(folder, error) from error


def refuse_existing(folder: Path) -> None:
    """A `UsageError` if anything has the name already."""
    if os.path.lexists(folder):
        raise UsageError(f"{folder} exists already, and is left as it is: choose another folder")


def force_to_disk(path: Path) -> None:
    """A file or a folder's entries: until then a power cut may leave a name without its bytes."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
