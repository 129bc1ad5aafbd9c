"""Arrays over pairs as text that a page can carry: small, and close enough to be read off.

A byte n for each pair j ≤ i, row after row, deflated, in base 64. It stands for

    linear    n / 255
    cosine    2 n / 255 − 1
    square    (n / levels)²       small weights are told apart: the least that is not 0 is 1/65025
    counted   gates whose sums matter, n_ij = round(255 c_ij) − round(255 c_i,j+1)

with c_ij = Σ_{k=j}^{i} g_ik. So the sum of the bytes from j to i is the count to within 1/510,
however long the text, and no byte is further from its gate than 1/255.
"""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional as F

from milepost.look.layer import suffix_sum
from milepost.look.shown import Shown


@dataclass(frozen=True)
class Code:
    """How the numbers of an array become bytes: the name of the rule above, and its levels."""

    name: str
    levels: int = 255


DISTANCE = Code("distance")
"""i − j needs no bytes."""
SUMS = Code("sums")
"""Nor do positions that are the sums of gates."""


def codes(arrays: Mapping[str, Shown]) -> dict[str, Code]:
    """The code of each array of a layer."""
    counts = arrays["positions"].unit == "count"
    found = {
        "attention": Code("square"),
        "alone": Code("square", 63),  # a picture, and no more
        "gates": Code("counted" if counts else "linear"),
        "positions": {"count": SUMS, "tokens": DISTANCE, "cosine": Code("cosine")}.get(
            arrays["positions"].unit, Code("linear")
        ),
    }
    return {name: found[name] for name in arrays}


def levels(array: Float[Tensor, "*H S S"], code: Code) -> UInt8[Tensor, "*H S S"]:
    """The byte of every pair."""
    array = array.double()
    if code.name == "counted":
        # halves go up: rounded to the even number, a gate of 1 between two of them would be 256
        summed = (code.levels * suffix_sum(array) + 0.5).floor()
        return (summed - F.pad(summed[..., 1:], (0, 1))).to(torch.uint8)
    if code.name == "square":
        array = array.sqrt()
    elif code.name == "cosine":
        array = (array + 1) / 2
    return (code.levels * array.clamp(0, 1)).round().to(torch.uint8)


def packed(array: Float[Tensor, "S S"], code: Code) -> str:
    """The array of one head."""
    below = torch.ones(array.shape, dtype=torch.bool, device=array.device).tril()
    return text_of(levels(array, code)[below])


def text_of(numbers: UInt8[Tensor, "..."]) -> str:
    """Bytes, deflated, in base 64."""
    return base64.b64encode(zlib.compress(numbers.cpu().numpy().tobytes())).decode()
