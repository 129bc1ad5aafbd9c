"""Stick-breaking attention: the newest key takes its share of a stick, then the next oldest.

Tan et al. 2024, "Scaling Stick-Breaking Attention: An Efficient
Implementation and In-depth Study", arXiv 2410.17980.
"""

from typing import Any

import torch
from torch import Tensor, nn

from milepost import ops
from milepost.encoding import Encoding, Host, Operands, Positions
from milepost.errors import unknown


class StickBreaking(Encoding):
    """a_ij = σ(s_ij) Π_{j<k<i} (1 − σ(s_ik)),   o_i = Σ_j a_ij v_j + what becomes of the rest.

    The order of the keys is all that it knows of position, and the recent come first. The weights
    of the earlier keys sum to less than 1, and published code differs in what becomes of the rest:

        "drop"     nothing: o_i = Σ_j a_ij v_j (the paper's equation)
        "current"  the token's own value takes it: + r_i v_i (the authors' tests)
        "bias"     a learned vector of each head takes it, + r_i b_h, and each head's output is
                   then normalised, as GroupNorm with one group a head (the authors' model code)

    Options:
        remainder: one of these three.
        attend_current: whether the token itself breaks the stick first; the paper says no.
    """

    paper = "Tan et al. 2024, arXiv 2410.17980"
    changes = "replaces softmax by breaking a stick from the newest key on"
    op = staticmethod(ops.stick_breaking_attention)
    op_name = "stick_breaking"
    per_layer = True
    variants = (
        {"remainder": "current"},
        {"remainder": "bias"},
        {"remainder": "current", "attend_current": True},
    )

    def __init__(
        self, host: Host, *, remainder: str = "drop", attend_current: bool = False
    ) -> None:
        super().__init__(host)
        if remainder not in ("drop", "current", "bias"):
            raise unknown("remainder", remainder, ("drop", "current", "bias"))
        self.remainder = remainder
        self.attend_current = attend_current
        if remainder == "bias":
            self.bias = nn.Parameter(torch.zeros(host.heads, host.head_dim))
            self.norm = nn.GroupNorm(host.heads, host.heads * host.head_dim)

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
        """Say whether the token itself takes part."""
        memory = {"key": key, "value": value}
        return Operands(query, memory, {"attend_current": self.attend_current})

    def read(
        self, attended: tuple[Tensor, Tensor], *, operands: Operands, state: Any
    ) -> tuple[Tensor, Any]:
        """Give the remainder (B, H, S) to whom it belongs."""
        out, remainder = attended
        share = remainder[..., None].to(out.dtype)
        if self.remainder == "current":
            value = operands.memory["value"].repeat_interleave(self.host.group, dim=1)
            out = out + share * value
        elif self.remainder == "bias":
            out = out + share * self.bias[:, None].to(out.dtype)
            B, H, S, D = out.shape
            tokens = out.transpose(1, 2).reshape(B * S, H * D)
            out = self.norm(tokens).view(B, S, H, D).transpose(1, 2)
        return out, state
