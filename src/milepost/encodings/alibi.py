"""ALiBi: attention with linear biases, a fixed slope per head.

Press, Smith, Lewis 2021, "Train Short, Test Long: Attention with Linear Biases Enables Input
Length Extrapolation", arXiv 2108.12409, Sec. 3.
"""

from typing import Any

import torch
from torch import Tensor

from milepost import ops
from milepost.encoding import Encoding, Operands, Positions


def slopes(heads: int) -> list[float]:
    """m_h = 2^(−8h/H) for h = 1 … H, where H is a power of two.

    Otherwise the slopes of the power of two below, then every other one of twice that power. So
    it is in the authors' code and all ports; the paper prints the first formula for any H.
    """
    power = 1 << (heads.bit_length() - 1)
    between = [2 ** (-4 * (2 * h + 1) / power) for h in range(heads - power)]
    return [2 ** (-8 * (h + 1) / power) for h in range(power)] + between


class Alibi(Encoding):
    """s_ij = q_i·k_j / √D − m_h · (i − j).

    Most code adds m_h · j instead, which softmax cannot tell apart; in low precision it can, for
    m_h · j grows with the length. Slopes are fixed, and the bias is made in fp32 at least.
    """

    paper = "Press et al. 2021, arXiv 2108.12409"
    changes = "adds −m·(i − j) to the logits"
    op = staticmethod(ops.bias_attention)
    op_name = "bias"

    def begin(self, x: Tensor, positions: Positions) -> tuple[Tensor, Any]:
        """The state is the bias (H, end), made once for all layers."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        slope = torch.tensor(slopes(self.host.heads), dtype=dtype, device=x.device)
        return x, -slope[:, None] * torch.arange(positions.end, dtype=dtype, device=x.device)

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
