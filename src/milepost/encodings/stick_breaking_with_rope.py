"""Stick-breaking beside RoPE: the stick breaks by the logits of rotated queries and keys.

Tan et al. 2024, arXiv 2410.17980; Su et al. 2021, arXiv 2104.09864.
"""

from typing import Any

from torch import Tensor

from milepost.composition import Composition
from milepost.encoding import Operands
from milepost.encodings.rope import Rope
from milepost.encodings.stick_breaking import StickBreaking


class StickBreakingWithRope(Composition):
    """a_ij = σ(s_ij) Π_{j<k<i} (1 − σ(s_ik)), s_ij = (R_i q_i)·(R_j k_j) / √D.

    Stick-breaking knows the order of the keys and not how far they are; RoPE lets a break depend on
    that, too.

    Options: those of `stick-breaking` and of `rope`.
    """

    paper = StickBreaking.paper
    changes = "rotates queries and keys, and breaks a stick in place of softmax"
    op_name = StickBreaking.op_name
    variants = ({"remainder": "bias"}, {"remainder": "current", "attend_current": True})
    parts = (StickBreaking, Rope)

    def read(self, attended: Any, *, operands: Operands, state: Any) -> tuple[Tensor, Any]:
        """Stick-breaking's: the remainder goes to whom it belongs."""
        return self.contextual.read(attended, operands=operands, state=state)
