"""Plain attention, compiled."""

from typing import Any

from torch import Tensor

from milepost.ops.native import _scan


def refusal(query: Tensor, key: Tensor, value: Tensor, **rest: Any) -> str | None:
    """Why it cannot run; None if it can."""
    return _scan.refusal(query, key, value)


def attend(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None, start: Tensor | None
) -> Tensor:
    """`milepost.ops.softmax_attention`."""
    return _scan.attend("softmax", query, key, value, start, scale=scale)[0]
