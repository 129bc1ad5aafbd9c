"""Small tiles, so that short sequences have several; and memory that nobody writes is NaN.

Heads wider than STEP are multiplied in steps.
"""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
import torch

from milepost.ops import triton
from milepost.ops.triton._blocks import Blocks, forced

from .interpreter import mend

# Of queries and of keys: wide tiles and high ones, other ones in a band than beyond it
TILES = {
    "forward": (32, 16),
    "decode": (16, 16),
    "backward_query": (32, 16),
    "backward_key": (16, 32),
    "band_query": (16, 16),
    "band_key": (16, 32),
}
STEP = 32


@pytest.fixture(autouse=True)
def small_tiles() -> Iterator[None]:
    with ExitStack() as stack:
        for kernel, (M, N) in TILES.items():
            stack.enter_context(forced(kernel, Blocks(M, N, warps=4, stages=1, step=STEP)))
        yield


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where there is a GPU the kernels are compiled for it, and nothing here applies."""
    if not triton.interpreted():
        yield
        return
    mend(monkeypatch)
    torch.use_deterministic_algorithms(True)
    assert torch.empty(1000).isnan().all()
    # As on a GPU, numbers that are not chosen may be infinite or NaN without a word: 1 / 0 of a row
    # that sees no key, exponentials beside a mask
    with (
        np.errstate(divide="ignore", over="ignore", invalid="ignore"),
        warnings.catch_warnings(),
    ):
        # A maximum of NaN alone, where a test puts NaN
        warnings.filterwarnings("ignore", "All-NaN slice encountered", RuntimeWarning)
        yield
    torch.use_deterministic_algorithms(False)
