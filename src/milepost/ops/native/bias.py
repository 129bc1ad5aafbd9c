"""Attention with a bias by distance, or with a dense one, compiled."""

from typing import Any

from torch import Tensor

from milepost.ops import inputs
from milepost.ops.native import _scan

refusal = _scan.refusal


def attend(**operands: Any) -> Tensor:
    """`milepost.ops.bias_attention`."""
    return _scan.attend(inputs.bias(**operands))[0]
