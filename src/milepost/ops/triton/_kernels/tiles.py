"""Tiles of queries and of keys: where they lie, which of them see each other, and their loads."""

import triton
import triton.language as tl


@triton.jit
def load_rows(
    tensor, batch, head, times, end, W: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr
):
    """[times, BLOCK] of a strided tensor of width W; zeros outside it if MASKED."""
    across = tl.arange(0, BLOCK)[None, :]
    rows = times[:, None]
    at = tensor.at + batch.to(tl.int64) * tensor.batch + head.to(tl.int64) * tensor.head
    at += rows.to(tl.int64) * tensor.time + across
    if MASKED and W < BLOCK:
        return tl.load(at, mask=(rows >= 0) & (rows < end) & (across < W), other=0.0)
    elif MASKED:
        return tl.load(at, mask=(rows >= 0) & (rows < end), other=0.0)
    elif W < BLOCK:
        return tl.load(at, mask=across < W, other=0.0)
    else:
        return tl.load(at)


@triton.jit
def load_columns(
    tensor, batch, head, times, end, W: tl.constexpr, BLOCK: tl.constexpr, MASKED: tl.constexpr
):
    """The same, [BLOCK, times]."""
    across = tl.arange(0, BLOCK)[:, None]
    rows = times[None, :]
    at = tensor.at + batch.to(tl.int64) * tensor.batch + head.to(tl.int64) * tensor.head
    at += rows.to(tl.int64) * tensor.time + across
    if MASKED and W < BLOCK:
        return tl.load(at, mask=(rows >= 0) & (rows < end) & (across < W), other=0.0)
    elif MASKED:
        return tl.load(at, mask=(rows >= 0) & (rows < end), other=0.0)
    elif W < BLOCK:
        return tl.load(at, mask=across < W, other=0.0)
    else:
        return tl.load(at)


NO_KEY = tl.constexpr(1 << 30)


@triton.jit
def first_seen(given, batch, rows):
    """The oldest key that each row sees; rows past the last one see none."""
    inside = rows < given.queries
    if given.start is not None:
        at = given.start + batch.to(tl.int64) * given.queries + rows
        return tl.load(at, mask=inside, other=NO_KEY)
    else:
        return tl.where(inside, 0, NO_KEY)


@triton.jit
def oldest_needed(given, batch, head, rows, first):
    """The oldest key that any of these rows needs."""
    oldest = tl.min(first)
    if given.needed is not None:
        at = given.needed + (batch * given.heads + head).to(tl.int64) * given.queries + rows
        needed = tl.load(at, mask=rows < given.queries, other=NO_KEY)
        oldest = tl.maximum(oldest, tl.min(needed))
    return oldest
