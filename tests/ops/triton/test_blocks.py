"""The table of tiles: what the kernels need of each other."""

import pytest

from milepost.ops.triton import _blocks
from milepost.ops.triton._blocks import CLASSES, HEAD_DIMS, TABLE, Sizes

EVERY = [
    Sizes(kind, head_dim, bytes, more, target)
    for target, bytes in TABLE
    for kind in CLASSES
    for more in (False, True)
    for head_dim in HEAD_DIMS
]


@pytest.mark.parametrize("sizes", EVERY, ids=str)
def test_tiles_fit_each_other(sizes):
    for kernel in ("forward", "backward_query", "backward_key", "decode"):
        M, N, warps, stages, step = _blocks.blocks(kernel, sizes)
        assert min(M, N) >= 16
        assert N <= 64 or CLASSES[sizes.kind] != "cope", "sums of more gates are not exact"
        assert warps in (4, 8)
        assert stages >= 1
        assert step in (16, 32, 64, 128, 256)
    if CLASSES[sizes.kind] not in ("cope", "stick"):
        return
    rows, keys = (_blocks.blocks(f"band_{of}", sizes) for of in ("query", "key"))
    assert keys.N % rows.N == 0, "carries are those of the tiles of queries' band"
    assert max(keys.N, rows.N) <= 64
    if CLASSES[sizes.kind] == "cope":
        whole = _blocks.blocks("backward_query", sizes)
        assert whole.M % rows.M == 0, "the rows of a tile have one band"
