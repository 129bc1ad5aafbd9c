"""Relative positions: a learned vector for each token distance, added to the keys.

Shaw, Uszkoreit, Vaswani 2018, "Self-Attention with Relative Position Representations",
arXiv 1803.02155, Eq. 4; as in Golovneva et al. 2024, arXiv 2405.18719, Eq. 1 and Fig. 3.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost import ops
from milepost.encoding import Encoding, Host, Operands, Positions, length_or


class Relative(Encoding):
    """s_ij = q_i·(k_j + e[i − j]) / √D, e a table of `length` vectors shared by heads and layers.

    A distance past the table gets no position term, s_ij = q_i·k_j / √D: the `relative` of the
    CoPE paper's Fig. 3, which does badly beyond the length it was trained on. The form is that of
    the CoPE authors' released code, N(0, 1/D) at the start. Shaw's own has a table for each
    layer, vectors for values too, and one vector for all distances from k on (`relative-capped`).

    Options:
        length: rows of the table; the model's `max_length` if None.
    """

    paper = "Shaw et al. 2018, arXiv 1803.02155"
    changes = "adds q·e[i − j] to the logits"
    op = staticmethod(ops.relative_attention)
    op_name = "relative"
    variants = ({"length": 5},)

    def __init__(self, host: Host, *, length: int | None = None) -> None:
        super().__init__(host)
        rows = length_or(host.max_length, "length", length)
        self.table = nn.Parameter(torch.randn(rows, host.head_dim) * host.head_dim**-0.5)

    def rows(self, end: int) -> Tensor:
        """The vectors of distances 0 … end − 1; the last row stands for all that follow it."""
        if end <= self.table.shape[0]:
            return self.table[:end]
        return F.pad(self.table, (0, 0, 0, 1))

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
        """Hand over the table, scaled as the content logits are."""
        table = self.rows(positions.end) * self.host.head_dim**-0.5
        return Operands(query, {"key": key, "value": value}, {"table": table})
