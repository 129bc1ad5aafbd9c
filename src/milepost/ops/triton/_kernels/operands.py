"""What a kernel is given: pointers and strides by name, None for what an op does not have.

Triton takes a NamedTuple as an argument, and compiles a None in it as a constant.
"""

from typing import Any, NamedTuple


class Strided(NamedTuple):
    """A tensor (batch, heads, time, width) with a contiguous last axis; strides in elements."""

    at: Any
    batch: Any
    head: Any
    time: Any


class Given(NamedTuple):
    """The operands of one call. Logits are in base 2: log₂ e is in the numbers that make them."""

    query: Any
    """Strided, (B, H, S, D)."""
    key: Any
    """Strided, (B, G, T, D)."""
    value: Any
    """Strided, (B, G, T, V)."""
    gate_query: Any
    """Strided, (B, H, S, D), or None: gates are made of `query`."""
    gate_key: Any
    """Strided, (B, G, T, D), or None: gates are made of `key`."""
    start: Any
    """int32 (B, S), or None."""
    lookup: Any
    """fp32 (B, H, S, P + 1, 2), or None: z at each whole count, and its slope up to the next."""
    distance: Any
    """Strided, fp32 (B, H, S, R + 1): what is added at each distance; strides of 0 share it."""
    bias: Any
    """Strided, fp32 (B, H, S, T): what is added for each pair; strides of 0 share it."""
    slopes: Any
    """fp32 (H,)."""
    decay: Any
    """fp64 (B, H, T): Λ."""
    decay_in_tile: Any
    """fp32 (B, H, T): Λ at the newest key of the tile, less Λ at this key."""
    needed: Any
    """int32 (B, H, S), or None: the oldest key that a row needs, where decay leaves out others."""
    last: Any
    """P, the last entry of `lookup`."""
    beyond: Any
    """R, the last entry of `distance`; 0 without one."""
    full: Any
    """P, in quanta."""
    settled: Any
    """What a row has to carry for older keys not to change it (int64), or to be left out (fp32)."""
    lag: Any
    """1 where a query does not see its own token, else 0."""
    scale: Any
    """Of q·k, in base 2."""
    gate_scale: Any
    """Of the gates' logits, in base 2."""
    heads: Any
    """H."""
    group: Any
    """H / G."""
    queries: Any
    """S."""
    keys: Any
    """T."""


class Policy(NamedTuple):
    """The functions of an op (`policies`)."""

    logits: Any
    shift: Any


class Constants(NamedTuple):
    """What a kernel is compiled for beside the op's policy: a `tl.constexpr`, and each field one.

    It has no functions: what was compiled before is found by the source of functions, and of a
    `tl.constexpr` by what is printed.
    """

    COUNTS: Any
    """Whether the op counts gates."""
    STICK: Any
    """Whether it breaks a stick."""
    APPROXIMATE: Any
    """Whether gates are coarse."""
    PRECISION: Any
    """How numbers in fp32 are multiplied."""
    D: Any
    """How wide queries and keys are."""
    V: Any
    """And values."""
    BLOCK_D: Any
    """Their tiles: a power of 2."""
    BLOCK_V: Any
    """And those of values."""
    M: Any
    """How many queries are a tile."""
    N: Any
    """How many keys."""
    STEP: Any
    """How many numbers of a row are multiplied at a time."""


class Backward(NamedTuple):
    """What the backward is given beside the operands, and what it hands from kernel to kernel."""

    out: Any
    """(B, H, S, V), as the forward wrote it."""
    residual: Any
    """fp32 (2, B, H, S), a logit of each row and 1 / its sum; or (B, H, S), the remainder."""
    grad_out: Any
    """Strided, (B, H, S, V)."""
    grad_residual: Any
    """fp32 (B, H, S): of the remainder; or None."""
    delta: Any
    """fp32 (B, H, S): grad_out · out."""
    carry: Any
    """(B, H, tiles of the band, S): what each row carries when it comes to the tile, where it
    counts or breaks a stick: int64 quanta, or fp32."""
    band: Any
    """int32 (B, H, S): the oldest key that may count."""
    band_begin: Any
    """int32 (B, H, tiles of rows): the oldest that may for any row of a tile."""
    tile: Any
    """How many rows are such a tile."""
    older: Any
    """fp32 (B, H, tiles of the band, S): the sum of ∂loss/∂carry over all older tiles."""
    band_reach: Any
    """int32 (B, H, groups of keys): the newest row for which any of the keys may count."""
    reach: Any
    """int32 (B, H, groups of keys): the newest row that sees, or needs, any; None if all do."""
    keys: Any
    """How many keys are such a group."""
    rows: Any
    """The band of a group ends at a multiple of so many rows."""
    rest: Any
    """`Rest`, of the kernels before those of the band; or None."""


class Rest(NamedTuple):
    """What lies beyond the band adds, in fp32: kernels of their own, with larger tiles."""

    query: Any
    """(B, H, S, D)."""
    key: Any
    """(B, G, T, D)."""
    value: Any
    """(B, G, T, V)."""
    taken: Any
    """(B, H, S): the sum over these keys of ∂loss/∂logit."""


class Gradients(NamedTuple):
    """Where the gradients go; None where nobody wants one."""

    query: Any
    """(B, H, S, D)."""
    key: Any
    """(B, G, T, D)."""
    value: Any
    """(B, G, T, V)."""
    gate_query: Any
    """(B, H, S, D)."""
    gate_key: Any
    """(B, G, T, D)."""
    lookup: Any
    """fp32 (B, H, S, P + 1, 2): sums over the keys at each whole count and past it, of ∂loss/∂logit
    and of that times the part of the count above the whole; zeros to begin with."""
    distance: Any
    """fp32 (B, H, S, R + 1); zeros to begin with."""
    bias: Any
    """fp32 (B, H, S, T); zeros to begin with."""
    row: Any
    """fp32 (B, H, S): the sum over keys of ∂loss/∂logit; for slopes, of that times the count."""
    column: Any
    """fp32 (B, H, T): the sum over queries of ∂loss/∂logit."""
