"""Attention with a bias by distance, or with a dense one, compiled."""

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
    bias: Tensor,
    scale: float | None,
    start: Tensor | None,
) -> Tensor:
    """`milepost.ops.bias_attention`."""
    kind = "bias_table" if bias.ndim == 2 else "bias_dense"
    return _scan.attend(kind, query, key, value, start, scale=scale, bias=bias)[0]
