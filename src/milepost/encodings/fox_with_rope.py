"""FoX beside RoPE: rotated queries and keys, and forget gates on top.

Lin et al. 2025, arXiv 2503.02130, which compares FoX with and without it.
"""

from typing import Any

from torch import Tensor

from milepost import ops
from milepost.encoding import Encoding, Host, Operands, Positions
from milepost.encodings.fox import Fox
from milepost.encodings.rope import Rope


class FoxWithRope(Encoding):
    """s_ij = (R_i q_i)·(R_j k_j) / √D + Σ_{l=j+1}^{i} log f_l.

    Options: those of `fox` and of `rope`.
    """

    paper = "Lin et al. 2025, arXiv 2503.02130"
    changes = "rotates queries and keys, and adds the log of the forget gates"
    cached = Fox.cached
    op = staticmethod(ops.forgetting_attention)
    op_name = Fox.op_name

    def __init__(self, fox: Fox, rope: Encoding) -> None:
        super().__init__(fox.host)
        self.fox = fox
        self.rope = rope

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Those of both."""
        return {**Fox.options(), **Rope.options()}

    @classmethod
    def stack(cls, host: Host, **options: Any) -> list[Encoding]:
        """Each layer's gate beside one RoPE."""
        rope = Rope.of(host, **Rope.own(options))
        gates = Fox.own(options)
        return [cls(Fox(host, **gates), rope) for _ in range(host.layers)]

    def begin(self, x: Tensor, positions: Positions) -> tuple[Tensor, Any]:
        """RoPE's state."""
        return self.rope.begin(x, positions)

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
        """Rotate, then gate."""
        call = {"x": x, "positions": positions, "state": state}
        turned = self.rope.encode(query, key, value, **call)
        return self.fox.encode(turned.query, turned.memory["key"], value, **call)
