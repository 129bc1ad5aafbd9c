"""CoPE with slopes, compiled."""

from typing import Any

from torch import Tensor

from milepost.ops import inputs
from milepost.ops.native import _scan

refusal = _scan.refusal


def attend(**operands: Any) -> Tensor:
    """`milepost.ops.cope_alibi_attention`."""
    return _scan.attend(inputs.cope_alibi(**operands))[0]
