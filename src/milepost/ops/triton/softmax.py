"""Plain attention, for GPUs."""

from typing import Any

from torch import Tensor

from milepost.ops import inputs
from milepost.ops.triton import _scan

refusal = _scan.refusal


def attend(**operands: Any) -> Tensor:
    """`milepost.ops.softmax_attention`."""
    return _scan.attend(inputs.softmax(**operands))[0]
