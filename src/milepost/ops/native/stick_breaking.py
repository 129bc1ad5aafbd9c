"""Stick-breaking attention, compiled."""

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
    attend_current: bool,
    scale: float | None,
    start: Tensor | None,
    skip: bool,
) -> tuple[Tensor, Tensor]:
    """`milepost.ops.stick_breaking_attention`."""
    return _scan.attend(
        "stick_breaking",
        query,
        key,
        value,
        start,
        scale=scale,
        attend_current=attend_current,
        skip=skip,
    )
