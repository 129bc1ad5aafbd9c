"""A number for each distance in tokens, s + t[min(i − j, R)]: of a bias table, or q·e."""

import triton
import triton.language as tl

from milepost.ops.triton._kernels import arithmetic


@triton.jit
def entries(given, batch, head, query):
    """Where the table of each query begins; rows past the last one read the last one's."""
    table = given.distance
    at = table.at + batch.to(tl.int64) * table.batch + head.to(tl.int64) * table.head
    return at + tl.minimum(query, given.queries - 1).to(tl.int64) * table.time


@triton.jit
def at_distance(given, batch, head, query, key):
    """t[min(i − j, R)] of each pair."""
    return arithmetic.number_at(entries(given, batch, head, query) + between(given, query, key))


@triton.jit
def between(given, query, key):
    """min(i − j, R), and 0 for a key in the future."""
    position = query + (given.keys - given.queries)
    return tl.maximum(tl.minimum(position - key, given.beyond), 0)


@triton.jit
def shift(given, batch, head, query):
    return tl.load(entries(given, batch, head, query) + given.beyond)


@triton.jit
def logits(
    content,
    gates,
    carry,
    given,
    batch,
    head,
    query,
    key,
    tile,
    const: tl.constexpr,
    KEYS: tl.constexpr,
    BAND: tl.constexpr,
    DIAGONAL: tl.constexpr,
):
    if BAND:
        content += at_distance(given, batch, head, query, key)
    return content, content, content, content
