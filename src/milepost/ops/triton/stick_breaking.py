"""Stick-breaking attention, for GPUs."""

from typing import Any

from torch import Tensor

from milepost.ops import inputs
from milepost.ops.triton import _scan

refusal = _scan.refusal


def attend(**operands: Any) -> tuple[Tensor, Tensor]:
    """`milepost.ops.stick_breaking_attention`."""
    return _scan.attend(inputs.stick_breaking(**operands))
