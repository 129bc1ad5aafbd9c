"""CoPE, compiled."""

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
    gate_keys: Tensor | None,
    position_query: Tensor | None,
    relative_table: Tensor | None,
    scale: float | None,
    gate_scale: float | None,
    position_scale: float,
    start: Tensor | None,
    skip: bool,
) -> Tensor:
    """`milepost.ops.cope_attention`."""
    out, _ = _scan.attend(
        "cope",
        query,
        key,
        value,
        start,
        scale=scale,
        gate_keys=gate_keys,
        position_query=position_query,
        table=table,
        relative_table=relative_table,
        gate_scale=gate_scale,
        position_scale=position_scale,
        skip=skip,
    )
    return out
