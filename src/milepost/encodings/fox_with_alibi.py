"""FoX beside ALiBi: forget gates, and a slope that no gate can lift.

Lin et al. 2025, arXiv 2503.02130; Press et al. 2021, arXiv 2108.12409.
"""

from dataclasses import replace
from typing import Any

from torch import Tensor

from milepost.composition import Composition
from milepost.encoding import Operands, Positions
from milepost.encodings.alibi import Alibi, slopes
from milepost.encodings.fox import Fox


class FoxWithAlibi(Composition):
    """s_ij = q_i·k_j / √D + Σ_{l=j+1}^{i} (log f_l − m_h).

    ALiBi is a forget gate that is the same for all tokens, f = exp(−m_h), and so the two are one
    sum: a gate of σ(w_f·x_l + b_f) · exp(−m_h).

    Options: those of `fox`; `alibi` has none.
    """

    paper = Fox.paper
    changes = "adds the log of the forget gates, and −m·(i − j)"
    op_name = Fox.op_name
    variants = ({"strength": 0.5},)
    parts = (Fox, Alibi)

    def begin(self, x: Tensor, positions: Positions) -> tuple[Tensor, Any]:
        """Nothing: the slopes go into the gates, not into a bias."""
        return x, None

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
        """Gate, each head's gates by its own slope more."""
        gated = self.contextual.encode(query, key, value, x=x, positions=positions, state=state)
        log_f = gated.sums["decay"]
        slope = log_f.new_tensor(slopes(self.host.heads))
        return replace(gated, sums={"decay": log_f - slope[:, None]})
