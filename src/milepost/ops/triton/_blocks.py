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

from milepost.ops.triton import interpreted


class Blocks(NamedTuple):
    """Of one kernel: M queries meet N keys at a time."""

    M: int
    N: int
    warps: int
    stages: int
    step: int = 256
    """How many numbers of wide heads, and of wide values, are multiplied at a time."""

    @property
    def options(self) -> dict[str, int]:
        """Of a launch."""
        return {"num_warps": self.warps, "num_stages": self.stages}

    def written(self) -> tuple[int, ...]:
        """As in `TABLE`."""
        return tuple(self)[: 4 if self.step == max(HEAD_DIMS) else 5]


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

# (target, bytes): for head_dim up to 64, 128 and 256: M, N, warps, stages, and step if not all is
# multiplied at a time. "sm_80" stands for all others of NVIDIA, the smallest of which have 99 KiB
# of shared memory
# fmt: off
TABLE: dict[tuple[str, int], dict[str, tuple[tuple[int, ...], ...]]] = {
    ("sm_90", 2): {
        "decode": ((16, 64, 8, 3), (16, 64, 4, 3), (16, 32, 4, 2)),
        "forward, plain": ((128, 64, 8, 3), (128, 64, 8, 3), (64, 32, 8, 3)),
        "forward, table": ((128, 64, 8, 2), (128, 32, 8, 2), (64, 32, 8, 2)),
        "forward, stick": ((128, 64, 8, 2), (128, 32, 8, 2), (128, 32, 8, 2)),
        "forward, cope": ((128, 32, 8, 2), (128, 32, 8, 2), (64, 16, 8, 2)),
        "forward, more": ((128, 32, 8, 2), (128, 16, 8, 2), (32, 32, 8, 2)),
        "backward_query, plain": ((128, 64, 8, 2), (128, 64, 8, 2), (64, 64, 8, 2, 128)),
        "backward_query, table": ((64, 64, 8, 2), (64, 32, 8, 2), (16, 32, 8, 1)),
        "backward_key, plain": ((32, 64, 8, 2), (32, 64, 8, 2), (64, 32, 8, 1)),
        "backward_key, table": ((32, 64, 4, 1), (64, 64, 8, 2, 64), (32, 32, 8, 1)),
        "band_query, stick": ((64, 32, 4, 2), (64, 32, 4, 1), (32, 32, 8, 1)),
        "band_query, cope": ((64, 32, 8, 1, 32), (64, 16, 4, 1), (16, 16, 8, 1)),
        "band_query, more": ((16, 32, 8, 1, 16), (16, 16, 8, 1), (16, 16, 8, 2, 32)),
        "band_key, stick": ((64, 32, 4, 2), (64, 32, 4, 1), (32, 32, 8, 1)),
        "band_key, cope": ((64, 32, 4, 1), (32, 32, 8, 2), (32, 16, 8, 1)),
        "band_key, more": ((16, 32, 4, 1, 16), (32, 16, 8, 2), (32, 16, 8, 1)),
    },
    ("sm_90", 4): {
        "decode": ((16, 32, 4, 2, 32), (16, 32, 8, 2), (16, 32, 4, 2, 64)),
        "forward, plain": ((64, 32, 4, 3), (32, 32, 8, 1), (16, 32, 8, 1, 64)),
        "forward, table": ((64, 32, 8, 2), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "forward, stick": ((64, 32, 4, 2), (32, 32, 4, 2), (32, 32, 8, 1, 64)),
        "forward, cope": ((32, 32, 8, 1), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "forward, more": ((32, 32, 8, 1, 32), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "backward_query, plain": ((64, 32, 8, 1, 16), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "backward_query, table": ((32, 32, 8, 1, 16), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "backward_key, plain": ((32, 32, 8, 1, 16), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "backward_key, table": ((32, 32, 4, 1, 16), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "band_query, stick": ((32, 16, 8, 1, 16), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "band_query, cope": ((16, 16, 8, 1), (16, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "band_query, more": ((16, 16, 8, 1, 16), (16, 16, 8, 1, 32), (16, 16, 8, 1, 16)),
        "band_key, stick": ((32, 16, 8, 1, 16), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "band_key, cope": ((16, 32, 4, 1, 16), (16, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "band_key, more": ((32, 16, 8, 1, 16), (16, 32, 8, 1, 32), (16, 16, 8, 1, 16)),
    },
    ("sm_100", 2): {
        "decode": ((16, 64, 8, 3), (16, 64, 4, 3), (16, 32, 4, 2)),
        "forward, plain": ((128, 64, 8, 3), (128, 64, 8, 2), (64, 32, 8, 3)),
        "forward, table": ((128, 64, 8, 2), (128, 32, 8, 2), (64, 32, 8, 2)),
        "forward, stick": ((128, 64, 8, 2), (128, 32, 8, 1), (128, 32, 8, 2)),
        "forward, cope": ((64, 32, 8, 1), (128, 32, 8, 2), (64, 16, 8, 2)),
        "forward, more": ((128, 32, 8, 2), (128, 16, 8, 2), (32, 32, 8, 2)),
        "backward_query, plain": ((128, 64, 8, 2), (128, 64, 8, 2), (64, 64, 8, 2, 128)),
        "backward_query, table": ((64, 64, 8, 2), (64, 32, 8, 2), (16, 32, 8, 1)),
        "backward_key, plain": ((64, 32, 8, 1), (32, 32, 8, 1, 32), (64, 32, 8, 1)),
        "backward_key, table": ((32, 64, 4, 1), (64, 64, 8, 1, 64), (32, 32, 8, 1)),
        "band_query, stick": ((64, 32, 4, 2), (64, 32, 4, 1), (32, 32, 8, 1)),
        "band_query, cope": ((64, 32, 8, 1), (64, 16, 4, 2), (16, 16, 8, 1)),
        "band_query, more": ((16, 32, 4, 2), (16, 16, 8, 1), (16, 16, 8, 2, 32)),
        "band_key, stick": ((64, 32, 4, 2), (32, 32, 4, 1), (32, 32, 8, 1)),
        "band_key, cope": ((64, 32, 4, 2), (32, 32, 8, 2), (32, 16, 8, 1)),
        "band_key, more": ((16, 32, 4, 1), (32, 16, 8, 2), (32, 16, 8, 1)),
    },
    ("sm_100", 4): {
        "decode": ((16, 32, 4, 2, 32), (16, 32, 8, 2), (16, 32, 4, 2, 64)),
        "forward, plain": ((32, 32, 4, 1), (32, 32, 8, 1), (16, 32, 8, 1, 64)),
        "forward, table": ((64, 32, 8, 2), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "forward, stick": ((64, 32, 4, 2), (32, 32, 4, 2), (32, 32, 8, 1, 64)),
        "forward, cope": ((32, 32, 4, 2), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "forward, more": ((16, 32, 8, 1), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "backward_query, plain": ((64, 32, 8, 2), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "backward_query, table": ((16, 16, 8, 1), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "backward_key, plain": ((32, 32, 8, 1), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "backward_key, table": ((32, 32, 8, 1), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "band_query, stick": ((32, 32, 4, 1), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "band_query, cope": ((16, 32, 8, 1), (16, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "band_query, more": ((16, 16, 8, 1, 32), (16, 16, 8, 1, 32), (16, 16, 8, 1, 16)),
        "band_key, stick": ((32, 32, 8, 1), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "band_key, cope": ((32, 32, 8, 1), (16, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "band_key, more": ((16, 32, 8, 1), (16, 32, 8, 1, 32), (16, 16, 8, 1, 16)),
    },
    ("sm_80", 2): {
        "decode": ((16, 64, 8, 3), (16, 64, 4, 3), (16, 32, 4, 2)),
        "forward, plain": ((128, 64, 8, 3), (128, 64, 8, 3), (64, 32, 8, 1)),
        "forward, table": ((128, 64, 8, 2), (128, 32, 8, 2), (64, 32, 8, 2)),
        "forward, stick": ((128, 64, 8, 2), (128, 32, 8, 2), (64, 32, 8, 1)),
        "forward, cope": ((128, 32, 8, 2), (128, 32, 8, 2), (32, 32, 8, 1, 32)),
        "forward, more": ((128, 32, 8, 2), (128, 16, 8, 2), (32, 32, 8, 2)),
        "backward_query, plain": ((32, 32, 8, 1), (64, 64, 8, 1), (32, 64, 8, 1, 128)),
        "backward_query, table": ((32, 64, 8, 1), (64, 32, 8, 2), (16, 32, 8, 1)),
        "backward_key, plain": ((32, 64, 8, 1), (32, 64, 8, 2), (32, 32, 8, 1)),
        "backward_key, table": ((32, 64, 4, 1), (64, 64, 8, 1, 64), (32, 32, 8, 1)),
        "band_query, stick": ((64, 32, 4, 2), (32, 32, 4, 1), (32, 32, 8, 1)),
        "band_query, cope": ((32, 32, 8, 1), (32, 16, 8, 1), (16, 16, 8, 1)),
        "band_query, more": ((16, 32, 4, 2), (16, 16, 8, 2), (16, 16, 8, 2, 32)),
        "band_key, stick": ((64, 32, 4, 2), (64, 32, 4, 1), (32, 32, 8, 1)),
        "band_key, cope": ((32, 32, 8, 1), (32, 32, 8, 1), (32, 16, 8, 1)),
        "band_key, more": ((16, 32, 4, 1), (32, 16, 8, 1), (16, 16, 8, 1)),
    },
    ("sm_80", 4): {
        "decode": ((16, 32, 4, 2, 32), (16, 32, 8, 2), (16, 32, 4, 2, 64)),
        "forward, plain": ((32, 32, 8, 1), (32, 32, 8, 1), (16, 32, 8, 1, 64)),
        "forward, table": ((32, 32, 8, 1), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "forward, stick": ((64, 32, 4, 1), (32, 32, 4, 2), (32, 32, 8, 1, 64)),
        "forward, cope": ((32, 32, 4, 2), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "forward, more": ((16, 32, 8, 1), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "backward_query, plain": ((32, 32, 8, 1), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "backward_query, table": ((16, 32, 8, 1), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "backward_key, plain": ((32, 32, 8, 1), (16, 32, 8, 1, 32), (16, 32, 8, 1, 32)),
        "backward_key, table": ((32, 32, 8, 1), (32, 32, 8, 1, 32), (16, 32, 8, 1, 32)),
        "band_query, stick": ((32, 32, 4, 1), (32, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "band_query, cope": ((16, 32, 8, 1), (16, 16, 8, 1, 32), (16, 16, 8, 1, 32)),
        "band_query, more": ((16, 16, 8, 1, 32), (16, 16, 8, 1, 32), (16, 16, 8, 1, 16)),
        "band_key, stick": ((32, 32, 8, 1), (16, 32, 8, 1, 32), (16, 32, 8, 1, 64)),
        "band_key, cope": ((16, 32, 8, 1), (16, 16, 8, 1, 32), (16, 16, 8, 1, 32)),
        "band_key, more": ((16, 32, 8, 1), (16, 16, 8, 1, 32), (16, 16, 8, 1, 16)),
    },
    ("gfx942", 2): {
        "decode": ((16, 64, 4, 1), (16, 64, 4, 1), (16, 32, 4, 1)),
        "forward, plain": ((128, 64, 8, 1), (128, 64, 4, 1), (64, 64, 4, 1)),
        "forward, table": ((128, 64, 8, 1), (128, 32, 4, 1), (64, 32, 4, 1)),
        "forward, stick": ((128, 64, 4, 1), (128, 64, 4, 1), (128, 32, 4, 1)),
        "forward, cope": ((128, 64, 4, 1), (128, 32, 4, 1), (128, 32, 4, 1)),
        "forward, more": ((128, 64, 4, 1), (128, 32, 4, 1), (128, 16, 4, 1)),
        "backward_query, plain": ((128, 64, 8, 1), (64, 32, 4, 1), (64, 32, 4, 1)),
        "backward_query, table": ((128, 64, 4, 1), (64, 64, 4, 1), (64, 32, 4, 1)),
        "backward_key, plain": ((64, 64, 4, 1), (32, 64, 4, 1), (16, 32, 4, 1)),
        "backward_key, table": ((32, 64, 4, 1), (32, 64, 4, 1), (32, 32, 4, 1)),
        "band_query, stick": ((64, 32, 4, 1), (64, 32, 4, 1), (64, 32, 4, 1)),
        "band_query, cope": ((64, 32, 4, 1), (64, 32, 4, 1), (32, 32, 4, 1)),
        "band_query, more": ((64, 32, 4, 1), (64, 16, 4, 1), (16, 32, 8, 1, 32)),
        "band_key, stick": ((64, 32, 4, 1), (64, 32, 4, 1), (64, 32, 4, 1)),
        "band_key, cope": ((64, 32, 4, 1), (64, 32, 4, 1), (32, 32, 4, 1)),
        "band_key, more": ((64, 32, 4, 1), (16, 32, 4, 1), (16, 32, 8, 1, 32)),
    },
    ("gfx942", 4): {
        "decode": ((16, 32, 4, 1), (16, 32, 8, 1), (16, 32, 4, 1, 64)),
        "forward, plain": ((64, 32, 4, 1), (64, 32, 4, 1), (64, 32, 4, 1)),
        "forward, table": ((64, 32, 4, 1), (64, 32, 4, 1), (32, 32, 4, 1)),
        "forward, stick": ((64, 32, 4, 1), (64, 32, 4, 1), (64, 32, 4, 1)),
        "forward, cope": ((64, 32, 4, 1), (64, 32, 4, 1), (32, 32, 4, 1)),
        "forward, more": ((64, 32, 4, 1), (64, 32, 4, 1), (16, 32, 8, 1, 32)),
        "backward_query, plain": ((64, 32, 4, 1), (64, 32, 4, 1), (32, 32, 8, 1, 32)),
        "backward_query, table": ((64, 32, 4, 1), (64, 32, 4, 1), (32, 32, 8, 1, 32)),
        "backward_key, plain": ((32, 32, 4, 1), (16, 16, 8, 1, 32), (16, 16, 8, 1, 32)),
        "backward_key, table": ((32, 32, 4, 1), (16, 16, 8, 1, 32), (16, 32, 8, 1, 32)),
        "band_query, stick": ((64, 32, 4, 1), (64, 32, 4, 1), (32, 32, 8, 1, 32)),
        "band_query, cope": ((64, 32, 4, 1), (32, 32, 4, 1), (16, 32, 8, 1, 32)),
        "band_query, more": ((16, 16, 8, 1), (16, 16, 8, 1, 32), (16, 16, 8, 1, 32)),
        "band_key, stick": ((64, 32, 4, 1), (64, 32, 4, 1), (16, 32, 8, 1, 32)),
        "band_key, cope": ((64, 32, 4, 1), (64, 32, 4, 1), (16, 32, 8, 1, 32)),
        "band_key, more": ((32, 32, 4, 1), (16, 16, 8, 1, 32), (16, 16, 8, 1, 32)),
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
    return Blocks(*TABLE[sizes.target, sizes.bytes][row(kernel, sizes)][column(sizes)])


def row(kernel: str, sizes: Sizes) -> str:
    """The row of `TABLE` that a kernel is in."""
    if kernel == "decode":
        return kernel
    kind = CLASSES[sizes.kind]
    if kernel.startswith("backward") and kind in ("cope", "stick"):
        kind = "plain"
    if kind == "cope" and sizes.more:
        kind = "more"
    return f"{kernel}, {kind}"


def column(sizes: Sizes) -> int:
    """Its place in the row."""
    return next(i for i, head_dim in enumerate(HEAD_DIMS) if sizes.head_dim <= head_dim)


def target() -> str:
    """The target whose blocks are taken: of the current GPU, or of the one compiled for."""
    if interpreted():
        return "sm_90"
    from triton.runtime import driver

    current = driver.active.get_current_target()
    if current.backend == "hip":
        return "gfx942"
    generation = current.arch // 10
    return {9: "sm_90", 10: "sm_100"}.get(generation, "sm_80")
