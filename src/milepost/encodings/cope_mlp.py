"""CoPE with a small network in place of the position table.

Golovneva et al. 2024, arXiv 2405.18719, Appendix C ("CoPE_MLP", Table 7).
"""

from typing import Any

import torch
from torch import Tensor, nn

from milepost import ops
from milepost.encoding import Encoding, Host, Operands, Positions
from milepost.encodings.cope import only_first
from milepost.errors import UsageError


class CopeMlp(Encoding):
    """s_ij = q_i·k_j / √D + q_i·e(p_ij), e(p) = Σ_n relu(w_n p + b_n) u_n.

    The paper says "an N-dimensional MLP layer" and no more. Here it has one hidden layer of N
    units with ReLU, shared by the heads. Its kinks start spread over 0 … p_max and its output
    starts at zero, as CoPE's table does. Positions stop at `p_max`, as CoPE's do. It costs N
    multiplications per pair of tokens: the paper reports 30 to 50 times the memory and run time
    "compared with regular positional encodings".

    Options:
        hidden: N, the width of the network; 64 in Table 7.
        p_max: the largest position that the network is shown.
        first_layer_only: the other layers have no position encoding (Table 7).
    """

    paper = "Golovneva et al. 2024, arXiv 2405.18719"
    changes = "adds q·mlp(p) to the logits, p a sum of gates"
    op = staticmethod(ops.cope_mlp_attention)
    op_name = "cope_mlp"
    per_layer = True
    variants = ({"first_layer_only": True, "hidden": 3},)

    def __init__(
        self, host: Host, *, hidden: int = 64, p_max: int = 64, first_layer_only: bool = False
    ) -> None:
        super().__init__(host)
        for name, number in (("hidden", hidden), ("p_max", p_max)):
            if number < 1:
                raise UsageError(f"{name} must be a whole number above 0, got {number}")
        self.p_max = p_max
        slope = torch.randn(hidden) / p_max
        self.weight_in = nn.Parameter(slope)
        self.bias_in = nn.Parameter(-slope * p_max * torch.rand(hidden))
        self.weight_out = nn.Parameter(torch.zeros(hidden, host.head_dim))

    @classmethod
    def stack(cls, host: Host, **options: Any) -> list[Encoding]:
        """A network for each layer, or the first alone."""
        layers = super().stack(host, **options)
        return only_first(layers) if options.get("first_layer_only") else layers

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
        """Hand over the network."""
        return Operands(
            query,
            {"key": key, "value": value},
            {
                "weight_in": self.weight_in,
                "bias_in": self.bias_in,
                "weight_out": self.weight_out,
                "max_position": float(self.p_max),
            },
        )
