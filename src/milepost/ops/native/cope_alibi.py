"""CoPE with slopes, compiled."""

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
    slopes: Tensor,
    gate_keys: Tensor | None,
    scale: float | None,
    gate_scale: float | None,
    start: Tensor | None,
) -> Tensor:
    """`milepost.ops.cope_alibi_attention`."""
    out, _ = _scan.attend(
        "cope_alibi",
        query,
        key,
        value,
        start,
        scale=scale,
        gate_keys=gate_keys,
        slopes=slopes,
        gate_scale=gate_scale,
    )
    return out
