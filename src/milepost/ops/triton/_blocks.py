"""How large the tiles of each kernel are, and how many warps and stages it takes."""

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


@cache
def blocks(kernel: str, sizes: Sizes) -> Blocks:
    """The blocks of "forward", "backward_query" or "backward_key"; the last two have one N."""
    counts = sizes.kind in ("cope", "cope_alibi", "stick_breaking")
    if sizes.bytes == 4:
        return Blocks(32, 32, 4, 1)
    if kernel == "forward":
        return Blocks(64, 32 if counts else 64, 4, 2)
    return Blocks(64, 32, 4, 2)
