"""Tiles of queries and of keys: where they lie, which of them see each other, loads, products."""

from typing import Any, NamedTuple

import triton
import triton.language as tl
from triton.runtime.jit import constexpr_function

from milepost.ops.triton._kernels import arithmetic


class Rows(NamedTuple):
    """Rows of a tensor."""

    tile: Any
    """[rows, padded width]: the numbers; zeros where there are none."""
    at: Any
    """Where each row begins."""
    inside: Any
    """Which rows there are."""


@constexpr_function
def padded(width):
    """The width of a tile: a power of 2, from 16 on, as products want it."""
    return max(16, 1 << (width - 1).bit_length())


@triton.jit
def load_rows(tensor, batch, head, times, end, W: tl.constexpr, MASKED: tl.constexpr):
    """The rows of a strided tensor of width W at some times; all are before its `end`, or MASKED.

    `head` is one head, or for each row its own.
    """
    at = tensor.at + batch.to(tl.int64) * tensor.batch + head.to(tl.int64) * tensor.head
    at += times.to(tl.int64) * tensor.time
    inside = (times >= 0) & (times < end)
    BLOCK: tl.constexpr = padded(W)
    across = tl.arange(0, BLOCK)[None, :]
    if MASKED and W < BLOCK:
        tile = tl.load(at[:, None] + across, mask=inside[:, None] & (across < W), other=0.0)
    elif MASKED:
        tile = tl.load(at[:, None] + across, mask=inside[:, None], other=0.0)
    elif W < BLOCK:
        tile = tl.load(at[:, None] + across, mask=across < W, other=0.0)
    else:
        tile = tl.load(at[:, None] + across)
    return Rows(tile, at, inside)


@triton.jit
def load_part(rows, begin, W: tl.constexpr, STEP: tl.constexpr):
    """STEP numbers of each row, from `begin` on."""
    across = begin + tl.arange(0, STEP)[None, :]
    if W % STEP == 0:
        return tl.load(rows.at[:, None] + across, mask=rows.inside[:, None], other=0.0)
    else:
        within = rows.inside[:, None] & (across < W)
        return tl.load(rows.at[:, None] + across, mask=within, other=0.0)


@triton.jit
def products(
    queries,
    keys,
    W: tl.constexpr,
    const: tl.constexpr,
    KEYS: tl.constexpr,
):
    """[queries, keys], or [keys, queries] where KEYS is 0.

    Of rows wider than STEP so many numbers at a time, which are read once more for it: registers do
    not hold wide rows of fp32 that is cut into tf32 numbers.
    """
    M: tl.constexpr = queries.at.shape[0]
    N: tl.constexpr = keys.at.shape[0]
    acc = tl.zeros((M, N) if KEYS == 1 else (N, M), tl.float32)
    if W <= const.STEP:
        return product(queries.tile, keys.tile, acc, KEYS, const.PRECISION)
    else:
        for begin in tl.range(0, W, const.STEP):
            query = load_part(queries, begin, W, const.STEP)
            key = load_part(keys, begin, W, const.STEP)
            acc = product(query, key, acc, KEYS, const.PRECISION)
        return acc


@triton.jit
def product(query, key, acc, KEYS: tl.constexpr, PRECISION: tl.constexpr):
    """acc + query · keyᵀ, or where KEYS is 0 key · queryᵀ."""
    if KEYS == 1:
        return arithmetic.dot(query, tl.trans(key), acc, PRECISION)
    else:
        return arithmetic.dot(key, tl.trans(query), acc, PRECISION)


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
