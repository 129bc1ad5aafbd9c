"""A number for each distance in tokens, s + t[min(i − j, R)]: of a bias table, or q·e."""

import triton
import triton.language as tl


@triton.jit
def at_distance(given, batch, head, query, apart):
    """t[apart] of each query; rows past the last one read the last one's."""
    table = given.distance
    at = table.at + batch.to(tl.int64) * table.batch + head.to(tl.int64) * table.head
    row = tl.minimum(query, given.queries - 1).to(tl.int64) * table.time
    return tl.load(at + row + apart)


@triton.jit
def between(given, query, key):
    """min(i − j, R), and 0 for a key in the future."""
    position = query + (given.keys - given.queries)
    return tl.maximum(tl.minimum(position - key, given.beyond), 0)


@triton.jit
def shift(given, batch, head, query):
    return at_distance(given, batch, head, query, given.beyond)


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
    N: tl.constexpr,
    KEYS: tl.constexpr,
    BAND: tl.constexpr,
    DIAGONAL: tl.constexpr,
    APPROXIMATE: tl.constexpr,
):
    if BAND:
        content += at_distance(given, batch, head, query, between(given, query, key))
    return content, content, content, content
