"""KERPLE: a bias that falls with distance as a kernel with two learned numbers per head.

Chi, Fan, Ramadge, Rudnicky 2022, "KERPLE: Kernelized Relative Positional Embedding for Length
Extrapolation", arXiv 2205.09921, Sec. 4.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from milepost import ops
from milepost.encoding import Encoding, Host, Operands, Positions
from milepost.errors import unknown

LOWEST = 0.01


def log_kernel(distance: Tensor, r1: Tensor, r2: Tensor) -> Tensor:
    """−r₁ log(1 + r₂ d): (N,), (H,), (H,) -> (H, N)."""
    return -r1[:, None] * (r2[:, None] * distance).log1p()


def power_kernel(distance: Tensor, r1: Tensor, r2: Tensor) -> Tensor:
    """−r₁ d^r₂: (N,), (H,), (H,) -> (H, N)."""
    return -r1[:, None] * distance ** r2[:, None]


def within(parameter: Tensor, highest: float = math.inf) -> Tensor:
    """The parameter, held between `LOWEST` and `highest`; gradients pass as if it were not.

    With the gradient of a clamp, a parameter that once stepped out would never come back.
    """
    return parameter + (parameter.clamp(LOWEST, highest) - parameter).detach()


class Kerple(Encoding):
    """s_ij = q_i·k_j / √D − r₁ log(1 + r₂ (i − j)), or with variant="power" − r₁ (i − j)^r₂.

    r₁, r₂ > 0, and r₂ ≤ 2 for the power, one of each per head, shared by all layers. As in the
    authors' code they start uniformly (log: r₁ in (0, 2), r₂ in (0, 1); power: r₁ in (0, 1), r₂ in
    (0, 2)) and are at least 0.01. The code overwrites the parameters by their clamp at each
    forward; here the clamp is in the forward alone (`within`).

    Options:
        variant: "log", the better one in the paper, or "power".
    """

    paper = "Chi et al. 2022, arXiv 2205.09921"
    changes = "adds −r₁ log(1 + r₂(i − j)) to the logits"
    op = staticmethod(ops.bias_attention)
    op_name = "bias"
    variants = ({"variant": "power"},)

    def __init__(self, host: Host, *, variant: str = "log") -> None:
        super().__init__(host)
        if variant not in ("log", "power"):
            raise unknown("variant", variant, ("log", "power"))
        self.variant = variant
        above = {"log": (2.0, 1.0), "power": (1.0, 2.0)}[variant]
        self.r1 = nn.Parameter(above[0] * torch.rand(host.heads))
        self.r2 = nn.Parameter(above[1] * torch.rand(host.heads))

    def begin(self, x: Tensor, positions: Positions) -> tuple[Tensor, Any]:
        """The state is the bias (H, end)."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        distance = torch.arange(positions.end, dtype=dtype, device=x.device)
        r1, r2 = self.r1.to(dtype), self.r2.to(dtype)
        if self.variant == "log":
            return x, log_kernel(distance, within(r1), within(r2))
        return x, power_kernel(distance, within(r1), within(r2, 2.0))

    def encode(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        x: Tensor,
        positions: Positions,
        state: Any,
    ) -> Operands:
        """Hand over the bias."""
        return Operands(query, {"key": key, "value": value}, {"bias": state})
