"""How large the tiles of each kernel are, and how many warps and stages it takes."""

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
    """The blocks of "forward", "backward_query" or "backward_key"; or of "band_query" or "band_key".

    The last two are of ops that count or break sticks, have one N, and M of "band_query" divides
    that of "backward_query".
    """
    return _forced.get(kernel) or _chosen(kernel, sizes)


@cache
def _chosen(kernel: str, sizes: Sizes) -> Blocks:
    counts = sizes.kind in ("cope", "cope_alibi", "stick_breaking")
    if sizes.bytes == 4:
        return Blocks(16 if kernel == "decode" else 32, 32, 4, 1)
    if kernel == "decode":
        return Blocks(16, 64, 4, 2)
    if kernel == "forward":
        return Blocks(64, 32 if counts else 64, 4, 2)
    if kernel == "backward_query":
        return Blocks(64, 64, 4, 2)
    if kernel == "backward_key":
        return Blocks(64, 64, 4, 2)
    return Blocks(64, 32, 8, 1)
