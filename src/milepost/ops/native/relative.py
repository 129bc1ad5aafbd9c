"""Attention with a learned vector per token distance, compiled."""

from typing import Any

from torch import Tensor

from milepost.ops.native import _scan


def refusal(query: Tensor, key: Tensor, value: Tensor, **rest: Any) -> str | None:
    """Why it cannot run; None if it can."""
    return _scan.refusal(query, key, value)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    table: Tensor,
    scale: float | None,
    start: Tensor | None,
) -> Tensor:
    """`milepost.ops.relative_attention`."""
    return _scan.attend("relative", query, key, value, start, scale=scale, relative_table=table)[0]
