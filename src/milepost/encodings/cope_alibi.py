"""CoPE with a slope in place of the position table: ALiBi over contextual positions.

Golovneva et al. 2024, arXiv 2405.18719, Appendix C, Eq. 10 ("CoPE_ALiBi", Tables 7 and 8).
"""

from typing import Any

import torch
from torch import Tensor, nn

from milepost import ops
from milepost.encoding import Encoding, Host, Operands, Positions
from milepost.encodings.alibi import slopes as alibi_slopes
from milepost.errors import UsageError, unknown


class CopeAlibi(Encoding):
    """s_ij = q_i·k_j / √D + m_h · p_ij, p_ij = Σ_{k=j}^{i} σ(q_i·k_k / √D).

    Eq. 10 prints +m·p with positive slopes, which favours what is *far*: within a layer no key
    could then outweigh an older one of the same content, as flip-flop asks and the paper's 0.0%
    (Table 7) suggests. ALiBi, which it says to follow, subtracts. So do we; `sign=1` is Eq. 10 to
    the letter.

    Options:
        slopes: "alibi" (Press et al. 2022, Table 8), "halving" (first, first/2, first/4, …, the
            three sets of Table 7), or "learned" (one for each head and layer, from 0).
        first: the first slope of "halving"; 1, 1/4 and 1/16 in Table 7.
        sign: of fixed slopes.
    """

    paper = "Golovneva et al. 2024, arXiv 2405.18719"
    changes = "adds m·p to the logits, p a sum of gates"
    op = staticmethod(ops.cope_alibi_attention)
    op_name = "cope_alibi"
    per_layer = True
    variants = ({"slopes": "halving", "first": 0.25}, {"slopes": "learned"}, {"sign": 1})

    def __init__(
        self, host: Host, *, slopes: str = "alibi", first: float = 1.0, sign: int = -1
    ) -> None:
        super().__init__(host)
        if sign not in (-1, 1):
            raise UsageError(f"sign must be -1 (favour the recent) or 1 (Eq. 10), got {sign!r}")
        if first <= 0:
            raise UsageError(f"first must be above 0, got {first!r}: sign gives the direction")
        if slopes != "halving" and first != 1:
            raise UsageError(f"first is the first slope of slopes='halving', got slopes={slopes!r}")
        if slopes == "learned" and sign != -1:
            raise UsageError("sign is of fixed slopes: learned ones find their own, from 0")
        self.learned: nn.Parameter | None = None
        if slopes == "learned":
            self.learned = nn.Parameter(torch.zeros(host.heads))
        elif slopes == "halving":
            self.fixed = [sign * first / 2**h for h in range(host.heads)]
        elif slopes == "alibi":
            self.fixed = [sign * slope for slope in alibi_slopes(host.heads)]
        else:
            raise unknown("slopes", slopes, ("alibi", "halving", "learned"))

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
        """Hand over the slopes."""
        fixed = self.learned is None
        slopes = torch.tensor(self.fixed, device=query.device) if fixed else self.learned
        return Operands(query, {"key": key, "value": value}, {"slopes": slopes})
