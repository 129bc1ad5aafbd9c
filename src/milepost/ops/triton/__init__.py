"""Kernels for GPUs, written in Triton. Imports everywhere; `missing` says why there are none.

The kernels are in `_kernels`: one scan, forward and backward, and what each op adds to it.
"""

import os
from importlib.util import find_spec


def missing() -> str | None:
    """Why there are no kernels; None if there are."""
    if find_spec("triton") is None:
        return "Triton is not installed: pip install triton"
    return None


def interpreted() -> bool:
    """Whether Triton runs kernels as Python on the CPU, to check their numbers: it is slow."""
    return os.environ.get("TRITON_INTERPRET") == "1" and missing() is None
