"""Axis letters, and the checks that every attention op makes of its operands.

    B  batch            H  query heads      G  key heads (H is a multiple of G)
    S  queries          T  keys             D  head_dim of queries and keys
    V  head_dim of values (V ≠ D is allowed: TAPE carries positions beside the values)
    P  largest position of a table, which has P + 1 rows

Query i (0 … S−1) stands at key i + T − S: queries are aligned to the end of the keys, so that
training (S = T), decoding (S = 1) and chunked prefill are one op.
"""

import math
from typing import Any

import torch
from torch import Tensor

from milepost.errors import UsageError

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def shape(tensor: Tensor) -> str:
    """A shape as errors print it: `(2, 4, 16, 64)`."""
    return str(tuple(tensor.shape))


def check_tensor(name: str, value: object) -> None:
    """`value` is a tensor at all."""
    if not isinstance(value, Tensor):
        raise UsageError(
            f"{name} must be a tensor, got {type(value).__name__}: "
            f"convert it with torch.as_tensor()"
        )


def check_integers(name: str, tensor: Tensor, meaning: str) -> None:
    """`tensor` holds integers that can index; `meaning` says in the error what they are."""
    check_tensor(name, tensor)
    if tensor.dtype not in (torch.int32, torch.int64):
        raise UsageError(
            f"{name} must be int32 or int64 ({meaning}), got {tensor.dtype}: "
            f"convert it with .long()"
        )


def check_number(name: str, number: Any) -> None:
    """`number` is a finite number."""
    # A comparison, not math.isfinite: torch.compile may make the number a variable
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not (is_number and -math.inf < number < math.inf):
        raise UsageError(f"{name} must be a finite number, got {number!r}")


def check_dtype(name: str, tensor: Tensor) -> None:
    """`tensor` holds floating numbers, of a kind that can be added up."""
    check_tensor(name, tensor)
    if tensor.dtype not in FLOATING:
        raise UsageError(
            f"{name} must be float16, bfloat16, float32 or float64, got {tensor.dtype}: "
            f"convert it with .float()"
        )


def check_floating(**tensors: Tensor) -> None:
    """Every tensor has the floating dtype and the device of the first, or a `UsageError`."""
    (first_name, first), *others = tensors.items()
    check_dtype(first_name, first)
    for name, tensor in others:
        check_tensor(name, tensor)
        if tensor.dtype != first.dtype:
            raise UsageError(
                f"{name} must have the dtype of {first_name}, {first.dtype}, got {tensor.dtype}: "
                f"convert one of them with .to()"
            )
        if tensor.device != first.device:
            raise UsageError(
                f"{name} must be on the device of {first_name}, {first.device}, "
                f"got {tensor.device}: move one of them with .to()"
            )


def check_shape(name: str, tensor: Tensor, *expected: tuple[int, ...], axes: str) -> None:
    """`tensor` has one of the `expected` shapes; `axes` names them in the error."""
    # `in` would be wrong under torch.compile once a length is a variable
    if not any(tensor.shape == fitting for fitting in expected):
        wanted = " or ".join(map(str, expected))
        raise UsageError(f"{name} must have shape {axes} = {wanted}, got {shape(tensor)}")


def check_attention(
    query: Tensor, key: Tensor, value: Tensor, start: Tensor | None, **scales: float | None
) -> None:
    """Check (B, H, S, D) queries against (B, G, T, D) keys, (B, G, T, V) values and `start`.

    `scales` are the op's numbers that may be None.
    """
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        check_tensor(name, tensor)
        if tensor.ndim != 4:
            raise UsageError(
                f"{name} must have 4 axes (batch, heads, time, head_dim), got {shape(tensor)}"
            )
    check_floating(query=query, key=key, value=value)
    B, H, S, D = query.shape
    G, T = key.shape[1:3]
    if D == 0:
        raise UsageError(f"query must have a head_dim above 0, got {shape(query)}")
    if key.shape[0] != B or key.shape[3] != D:
        raise UsageError(
            f"key must have the batch and head_dim of query, ({B}, heads, time, {D}), "
            f"got {shape(key)}"
        )
    if value.shape[:3] != key.shape[:3]:
        raise UsageError(
            f"value must have the batch, heads and time of key, ({B}, {G}, {T}, any), "
            f"got {shape(value)}"
        )
    if G == 0 or H % G:
        raise UsageError(
            f"query heads must be a multiple of key heads, got {H} query heads and {G} key heads: "
            f"choose key heads from the divisors of {H}"
        )
    if S > T:
        raise UsageError(
            f"queries are aligned to the end of the keys, so there cannot be more of them: "
            f"got {S} queries and {T} keys; pass the keys of earlier tokens too"
        )
    if start is not None:
        check_start(start, query)
    for name, number in scales.items():
        if number is not None:
            check_number(name, number)


def check_start(start: Tensor, query: Tensor) -> None:
    """`start` is an integer tensor (B, S) on the device of `query`."""
    B, _, S, _ = query.shape
    check_integers("start", start, "the first key that each query may see")
    check_shape("start", start, (B, S), axes="(batch, queries)")
    if start.device != query.device:
        raise UsageError(
            f"start must be on the device of query, {query.device}, got {start.device}"
        )


def parameter(
    name: str, tensor: Tensor, query: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    """A table, slope or gate in the precision of sums: fp32 (or `dtype`), fp64 for fp64 queries.

    Parameters may be of any floating dtype: under autocast a table is fp32 beside bf16 queries.
    """
    check_dtype(name, tensor)
    if tensor.device != query.device:
        raise UsageError(
            f"{name} must be on the device of query, {query.device}, got {tensor.device}: "
            f"move it with .to()"
        )
    return tensor.to(torch.promote_types(query.dtype, dtype))


def check_table(name: str, table: Tensor, query: Tensor) -> None:
    """`table` is (P+1, D), or (H, P+1, D) with rows of its own for each head."""
    _, H, _, D = query.shape
    fits = table.ndim in (2, 3) and table.shape[-1] == D and table.shape[-2] >= 1
    if not fits or (table.ndim == 3 and table.shape[0] != H):
        raise UsageError(
            f"{name} must have shape (P + 1, head_dim) = (any, {D}) or "
            f"(heads, P + 1, head_dim) = ({H}, any, {D}), got {shape(table)}"
        )
