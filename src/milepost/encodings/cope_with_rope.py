"""CoPE beside RoPE: rotated queries and keys, and contextual positions on top.

Golovneva et al. 2024, arXiv 2405.18719, Table 5 ("CoPE + RoPE" on code).
"""

from typing import Any

from torch import Tensor

from milepost.encoding import Encoding, Host, Operands, Positions
from milepost.encodings.cope import Cope
from milepost.encodings.rope import Rope


class CopeWithRope(Encoding):
    """s_ij = (R_i q_i)·(R_j k_j) / √D + q_i·e[p_ij], gates from the rotated logits.

    The paper does not say which query meets the position table. The rotated one would make the
    term depend on the token's absolute index, which neither encoding does; it is the unrotated.
    So it is that meets the gate keys of sep-keys and val-gates, which are not rotated either.

    Options: those of `cope` and of `rope`.
    """

    paper = "Golovneva et al. 2024, arXiv 2405.18719"
    changes = "rotates queries and keys, and adds q·e[p]"
    op_name = "cope"
    variants = ({"first_layer_only": True}, {"sep_keys": True, "shared": True})

    def __init__(self, cope: Cope, rope: Encoding) -> None:
        super().__init__(cope.host)
        self.cope = cope
        self.rope = rope
        self.op = cope.op

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Those of both."""
        return {**Cope.options(), **Rope.options()}

    @classmethod
    def stack(cls, host: Host, **options: Any) -> list[Encoding]:
        """Each layer's CoPE beside one RoPE; where a layer has no CoPE, RoPE alone."""
        rope = Rope.of(host, **Rope.own(options))
        copes = Cope.stack(host, **Cope.own(options))
        return [cls(cope, rope) if isinstance(cope, Cope) else rope for cope in copes]

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
        """Rotate, then count."""
        turned = self.rope.encode(query, key, value, x=x, positions=positions, state=state)
        counted = self.cope.encode(
            turned.query, turned.memory["key"], value, x=x, positions=positions, state=state
        )
        params = {**counted.params, "position_query": query}
        return Operands(counted.query, counted.memory, params)
