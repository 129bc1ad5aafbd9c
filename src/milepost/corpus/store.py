"""Big corpora and their tokens as files that are mapped into memory, not read.

Each is a folder of `train.bin`, `validation.bin` and `test.bin`, plain numbers of one type, named
by a digest of what they follow from, and written whole or not at all. A small corpus stays in
memory, and nothing is written. Everything here can be deleted: it is made again when needed.

The folder is $MILEPOST_CACHE, or else `milepost` in $XDG_CACHE_HOME or in ~/.cache.
"""

import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from milepost.corpus.splits import SPLITS
from milepost.files import PARTIAL, cannot_write, digest, force_to_disk, write_json

SMALL = 2**24
"""A corpus of so many bytes stays in memory."""

Splits = Mapping[str, np.ndarray]
"""The numbers of each split, in one row."""


def folder() -> Path:
    """Where they are."""
    if given := os.environ.get("MILEPOST_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "milepost"


def mapped(
    identity: Mapping[str, Any],
    dtype: np.dtype[Any],
    pieces: Callable[[], Iterable[tuple[str, bytes]]],
) -> Splits:
    """The numbers of each split, written at first if they are not there.

    Args:
        identity: what the numbers follow from.
        dtype: their type.
        pieces: begins to make them: the split and the bytes of one piece after another.

    Raises:
        UsageError: the cache cannot be written.
    """
    place = folder() / "corpora" / digest({**identity, "dtype": dtype.name})
    if not place.is_dir():
        _write(place, identity, pieces())
    return {split: _map(place / f"{split}.bin", dtype) for split in SPLITS}


def _map(path: Path, dtype: np.dtype[Any]) -> np.ndarray:
    if not path.stat().st_size:  # which the system would not map
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r")


def _write(place: Path, identity: Mapping[str, Any], pieces: Iterable[tuple[str, bytes]]) -> None:
    owner = f"{os.getpid()}-{threading.get_ident()}"
    partial = place.with_name(f".{place.name}.{owner}{PARTIAL}")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        with ExitStack() as stack:
            files = {
                split: stack.enter_context(open(partial / f"{split}.bin", "wb")) for split in SPLITS
            }
            for split, piece in pieces:
                files[split].write(piece)
        write_json(partial / "identity.json", identity)
        for path in (*partial.iterdir(), partial):
            force_to_disk(path)
        try:
            partial.rename(place)
        except OSError:
            if not place.is_dir():  # or another process was first, with the same
                raise
        force_to_disk(place.parent)
    except OSError as error:
        raise cannot_write(place, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
