"""Forgetting attention, compiled."""

from typing import Any

import torch
from torch import Tensor

from milepost.ops.native import _scan


def refusal(query: Tensor, key: Tensor, value: Tensor, **rest: Any) -> str | None:
    """Why it cannot run; None if it can."""
    return _scan.refusal(query, key, value)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_f: Tensor,
    scale: float | None,
    start: Tensor | None,
    skip: bool,
) -> Tensor:
    """`milepost.ops.forgetting_attention`."""
    decay = log_f.cumsum(-1, dtype=torch.float64)  # its differences lose nothing with the length
    return _scan.attend(
        "forgetting", query, key, value, start, scale=scale, decay=decay, skip=skip
    )[0]
