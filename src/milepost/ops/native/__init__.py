"""Kernels for CPUs, compiled from C++. Imports everywhere; `missing` says why there are none.

The extension `_kernels` holds the same kernels compiled for several instruction sets. Those that
this CPU runs are found when it is loaded, and the fastest is taken.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from milepost.errors import UsageError, unknown

_missing: str | None = None
try:
    import milepost.ops.native._kernels as _kernels
except ModuleNotFoundError as error:
    _kernels = None  # type: ignore[assignment]  # in place of a module
    _missing = f"the kernels were not compiled for this Python when it was installed ({error})"
except (ImportError, OSError) as error:
    _kernels = None  # type: ignore[assignment]  # in place of a module
    _missing = f"the compiled kernels do not load: {error}"

_isas: tuple[str, ...] = () if _kernels is None else tuple(_kernels.variants())
_isa: str | None = _isas[0] if _isas else None
_said = False


def missing() -> str | None:
    """Why there are no compiled kernels; None if there are."""
    return _missing


def isas() -> tuple[str, ...]:
    """The instruction sets that there are kernels for and that this machine runs, fastest first."""
    return _isas


def isa() -> str | None:
    """The instruction set in use; None where there are no compiled kernels."""
    return _isa


@contextmanager
def use(name: str) -> Iterator[None]:
    """Within it the kernels run as those of the instruction set `name`, in every thread.

    For tests and benchmarks: what is fastest is chosen without it.
    """
    global _isa
    if _missing is not None:
        raise UsageError(f"no instruction set can be chosen, got {name!r}: {_missing}")
    if name not in _isas:
        raise unknown("instruction set of this machine", name, _isas)
    before, _isa = _isa, name
    try:
        yield
    finally:
        _isa = before


def run(
    op: int, backward: bool, sizes: tuple[int, ...], threads: int, operands: dict[str, Any]
) -> None:
    """Run a compiled kernel of the instruction set in use; `_scan.py` says on what."""
    assert _isa is not None
    _kernels.run(_isa, op, backward, sizes, threads, operands)


def warn_if_missing() -> None:
    """Say that the slower path is in use, and the remedy: once, and only if it is so."""
    global _said
    if _missing is None or _said:
        return
    _said = True
    warnings.warn(
        f"milepost runs its slower path on CPUs: {_missing}. Install a C++17 compiler, then "
        "milepost again: `make build` in a clone, otherwise "
        "`pip install --force-reinstall --no-deps --no-cache-dir` with its source",
        RuntimeWarning,
        stacklevel=5,  # the caller of an op
    )
