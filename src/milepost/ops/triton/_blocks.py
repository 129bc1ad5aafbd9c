"""How large the tiles of each kernel are, and how many warps and stages it takes.

No kernel of the table spills registers on sm_90, nor needs more shared memory than a block has:
`milepost bench compile` finds out without a GPU. Of the candidates that did not, it has the largest
tiles; `milepost bench gpu --tune` measures which are fastest.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple


class Blocks(NamedTuple):
    """Of one kernel: M queries meet N keys at a time."""

    M: int
    N: int
    warps: int
    stages: int


@dataclass(frozen=True)
class Sizes:
    """What a choice depends on."""

    kind: str
    head_dim: int
    """That of queries and keys, or of values if it is larger, as a power of 2 from 16 on."""
    bytes: int
    """2 for halves, 4 for fp32."""
    more: bool = False
    """Whether counts have gate keys of their own, or a relative table beside them."""
    target: str = "sm_90"


# A rest beyond the band is plain, whatever the band is
CLASSES = {
    "softmax": "plain",
    "forgetting": "plain",
    "bias_table": "table",
    "bias_dense": "table",
    "relative": "table",
    "cope": "cope",
    "cope_alibi": "cope",
    "stick_breaking": "stick",
}
HEAD_DIMS = (64, 128, 256)

# (target, bytes): for head_dim up to 64, 128 and, in halves, 256: M, N, warps, stages.
# "sm_80" stands for all others of NVIDIA, the smallest of which have 99 KiB of shared memory
# fmt: off
TABLE: dict[tuple[str, int], dict[str, tuple[tuple[int, int, int, int], ...]]] = {
    ("sm_90", 2): {
        "forward, plain": ((128, 64, 8, 3), (128, 64, 8, 3), (64, 64, 8, 2)),
        "forward, table": ((128, 64, 8, 2), (64, 32, 8, 1), (64, 32, 8, 2)),
        "forward, stick": ((128, 64, 8, 2), (128, 32, 8, 2), (128, 32, 8, 2)),
        "forward, cope": ((128, 32, 8, 2), (128, 32, 8, 2), (32, 32, 8, 1)),
        "forward, more": ((128, 32, 8, 2), (16, 32, 4, 1), (32, 32, 8, 1)),
        "backward_query, plain": ((128, 64, 8, 2), (128, 64, 8, 2), (16, 32, 8, 1)),
        "backward_query, table": ((128, 64, 8, 2), (16, 32, 8, 1), (16, 32, 8, 1)),
        "backward_key, plain": ((64, 64, 8, 2), (32, 64, 8, 2), (32, 32, 8, 1)),
        "backward_key, table": ((32, 64, 4, 2), (32, 32, 8, 1), (32, 32, 8, 1)),
        "band_query, stick": ((64, 32, 4, 2), (64, 32, 8, 1), (32, 32, 8, 1)),
        "band_query, cope": ((64, 32, 8, 1), (16, 32, 8, 1), (16, 32, 8, 1)),
        "band_query, more": ((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "band_key, stick": ((64, 32, 4, 2), (64, 32, 4, 1), (32, 32, 8, 1)),
        "band_key, cope": ((64, 32, 4, 2), (16, 32, 4, 1), (16, 32, 8, 1)),
        "band_key, more": ((16, 16, 8, 1), (16, 16, 8, 1), (16, 32, 8, 1)),
    },
    ("sm_90", 4): {
        "forward, plain": ((64, 32, 4, 2), (32, 32, 8, 1)),
        "forward, table": ((64, 32, 8, 2), (16, 32, 4, 1)),
        "forward, stick": ((64, 32, 4, 2), (32, 32, 4, 2)),
        "forward, cope": ((32, 32, 4, 2), (16, 32, 4, 1)),
        "forward, more": ((16, 32, 4, 1), (16, 32, 8, 1)),
        "backward_query, plain": ((64, 32, 8, 2), (16, 32, 4, 1)),
        "backward_query, table": ((16, 32, 4, 1), (16, 32, 4, 1)),
        "backward_key, plain": ((16, 16, 8, 2), (16, 16, 8, 2)),
        "backward_key, table": ((16, 16, 8, 2), (16, 16, 8, 1)),
        "band_query, stick": ((32, 32, 4, 1), (16, 16, 8, 1)),
        "band_query, cope": ((16, 32, 8, 1), (16, 16, 8, 1)),
        "band_query, more": ((16, 32, 8, 1), (16, 16, 8, 1)),
        "band_key, stick": ((16, 32, 8, 1), (16, 16, 8, 2)),
        "band_key, cope": ((32, 32, 8, 1), (16, 16, 8, 1)),
        "band_key, more": ((16, 32, 4, 1), (16, 16, 8, 1)),
    },
    ("sm_100", 2): {
        "forward, plain": ((128, 64, 8, 3), (128, 64, 8, 3), (16, 16, 8, 1)),
        "forward, table": ((128, 64, 8, 2), (128, 64, 8, 2), (16, 16, 8, 1)),
        "forward, stick": ((128, 64, 8, 2), (16, 16, 8, 1), (16, 16, 8, 1)),
        "forward, cope": ((128, 32, 8, 2), (128, 32, 8, 2), (16, 16, 8, 1)),
        "forward, more": ((128, 32, 8, 2), (16, 16, 8, 1), (16, 16, 8, 1)),
        "backward_query, plain": ((128, 64, 8, 2), (16, 16, 8, 1), (16, 16, 8, 1)),
        "backward_query, table": ((128, 64, 8, 2), (16, 16, 8, 1), (16, 16, 8, 1)),
        "backward_key, plain": ((16, 32, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "backward_key, table": ((32, 64, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "band_query, stick": ((64, 32, 4, 2), (16, 16, 8, 1), (16, 16, 8, 1)),
        "band_query, cope": ((64, 32, 8, 1), (16, 32, 8, 1), (16, 16, 8, 1)),
        "band_query, more": ((16, 32, 4, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "band_key, stick": ((64, 32, 4, 2), (16, 16, 8, 1), (16, 16, 8, 1)),
        "band_key, cope": ((64, 32, 8, 1), (16, 32, 8, 1), (16, 16, 8, 1)),
        "band_key, more": ((16, 32, 4, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
    },
    ("sm_100", 4): {
        "forward, plain": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "forward, table": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "forward, stick": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "forward, cope": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "forward, more": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "backward_query, plain": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "backward_query, table": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "backward_key, plain": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "backward_key, table": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "band_query, stick": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "band_query, cope": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "band_query, more": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "band_key, stick": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "band_key, cope": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "band_key, more": ((16, 16, 8, 1), (16, 16, 8, 1)),
    },
    ("sm_80", 2): {
        "forward, plain": ((128, 64, 8, 3), (128, 64, 8, 3), (64, 64, 8, 1)),
        "forward, table": ((128, 64, 8, 2), (64, 32, 8, 1), (64, 32, 8, 2)),
        "forward, stick": ((128, 64, 8, 2), (128, 32, 8, 2), (64, 32, 8, 1)),
        "forward, cope": ((128, 32, 8, 2), (128, 32, 8, 2), (32, 32, 8, 1)),
        "forward, more": ((128, 32, 8, 2), (16, 32, 4, 1), (16, 16, 8, 1)),
        "backward_query, plain": ((64, 32, 8, 1), (16, 16, 8, 1), (16, 32, 8, 1)),
        "backward_query, table": ((64, 32, 8, 1), (16, 16, 8, 1), (16, 32, 8, 1)),
        "backward_key, plain": ((32, 32, 8, 1), (16, 16, 8, 1), (32, 32, 8, 1)),
        "backward_key, table": ((16, 16, 8, 1), (16, 16, 8, 1), (32, 32, 8, 1)),
        "band_query, stick": ((64, 32, 4, 2), (32, 32, 8, 1), (32, 32, 8, 1)),
        "band_query, cope": ((32, 32, 8, 1), (16, 32, 8, 1), (16, 32, 8, 1)),
        "band_query, more": ((16, 32, 4, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "band_key, stick": ((64, 32, 4, 2), (64, 32, 4, 1), (32, 32, 8, 1)),
        "band_key, cope": ((32, 32, 8, 1), (16, 32, 4, 1), (16, 32, 8, 1)),
        "band_key, more": ((16, 32, 4, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
    },
    ("sm_80", 4): {
        "forward, plain": ((32, 32, 8, 1), (32, 32, 8, 1)),
        "forward, table": ((32, 32, 8, 1), (32, 32, 8, 1)),
        "forward, stick": ((32, 32, 8, 1), (32, 32, 8, 1)),
        "forward, cope": ((32, 32, 8, 1), (16, 32, 8, 1)),
        "forward, more": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "backward_query, plain": ((32, 32, 8, 1), (16, 32, 8, 1)),
        "backward_query, table": ((32, 32, 8, 1), (16, 32, 8, 1)),
        "backward_key, plain": ((32, 32, 8, 1), (16, 16, 8, 1)),
        "backward_key, table": ((32, 32, 8, 1), (16, 16, 8, 1)),
        "band_query, stick": ((32, 32, 8, 1), (16, 32, 8, 1)),
        "band_query, cope": ((32, 32, 8, 1), (16, 32, 8, 1)),
        "band_query, more": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "band_key, stick": ((32, 32, 8, 1), (16, 32, 8, 1)),
        "band_key, cope": ((16, 32, 8, 1), (16, 32, 8, 1)),
        "band_key, more": ((16, 16, 8, 1), (16, 16, 8, 1)),
    },
    ("gfx942", 2): {
        "forward, plain": ((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "forward, table": ((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "forward, stick": ((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "forward, cope": ((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "forward, more": ((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "backward_query, plain": ((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "backward_query, table": ((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "backward_key, plain": ((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "backward_key, table": ((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "band_query, stick": ((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "band_query, cope": ((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "band_query, more": ((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "band_key, stick": ((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "band_key, cope": ((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
        "band_key, more": ((16, 16, 8, 1), (16, 16, 8, 1), (16, 16, 8, 1)),
    },
    ("gfx942", 4): {
        "forward, plain": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "forward, table": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "forward, stick": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "forward, cope": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "forward, more": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "backward_query, plain": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "backward_query, table": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "backward_key, plain": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "backward_key, table": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "band_query, stick": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "band_query, cope": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "band_query, more": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "band_key, stick": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "band_key, cope": ((16, 16, 8, 1), (16, 16, 8, 1)),
        "band_key, more": ((16, 16, 8, 1), (16, 16, 8, 1)),
    },
}
# fmt: on

_forced: dict[str, Blocks] = {}


@contextmanager
def forced(kernel: str, blocks: Blocks) -> Iterator[None]:
    """Within it, `kernel` takes these blocks whatever its sizes: to measure candidates."""
    before = dict(_forced)
    _forced[kernel] = blocks
    try:
        yield
    finally:
        _forced.clear()
        _forced.update(before)


def blocks(kernel: str, sizes: Sizes) -> Blocks:
    """The blocks of a kernel.

    "forward", "backward_query", "backward_key" and "decode" are of every op. Ops that count or
    break sticks have "band_query" and "band_key" too, where N of the latter is a multiple of that
    of the former, whose M divides that of "backward_query".
    """
    return _forced.get(kernel) or _chosen(kernel, sizes)


@cache
def _chosen(kernel: str, sizes: Sizes) -> Blocks:
    if kernel == "decode":
        # it waits for memory, not for registers
        return Blocks(16, 64 if sizes.bytes == 2 and sizes.head_dim <= 128 else 32, 4, 1)
    kind = CLASSES[sizes.kind]
    if kernel.startswith("backward") and kind in ("cope", "stick"):
        kind = "plain"
    if kind == "cope" and sizes.more:
        kind = "more"
    column = next(i for i, head_dim in enumerate(HEAD_DIMS) if sizes.head_dim <= head_dim)
    return Blocks(*TABLE[sizes.target, sizes.bytes][f"{kernel}, {kind}"][column])


def target() -> str:
    """The target whose blocks are taken: of the current GPU, or of the one compiled for."""
    from triton.runtime import driver

    current = driver.active.get_current_target()
    if current.backend == "hip":
        return "gfx942"
    generation = current.arch // 10
    return {9: "sm_90", 10: "sm_100"}.get(generation, "sm_80")
