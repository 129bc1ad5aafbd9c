"""Kernels for GPUs, written in Triton. Imports everywhere; `missing` says why there are none.

The kernels are in `_kernels`: one scan, forward and backward, and what each op adds to it.
"""

import os
from importlib.util import find_spec

# Asked once, at import: torch.compile cannot trace it
_missing: str | None = None
try:
    if find_spec("triton") is None:
        _missing = "Triton is not installed: pip install triton"
except ImportError as error:
    _missing = f"Triton is not found: {error}"


def missing() -> str | None:
    """Why there are no kernels; None if there are."""
    return _missing


def interpreted() -> bool:
    """Whether Triton runs kernels as Python on the CPU, to check their numbers: it is slow."""
    return os.environ.get("TRITON_INTERPRET") == "1" and missing() is None
