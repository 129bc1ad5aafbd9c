"""CoPE beside relative positions: a vector per token distance, and one per contextual position.

Golovneva et al. 2024, arXiv 2405.18719, Table 5 ("CoPE + Relative", the best of its rows).
"""

from typing import Any

from torch import Tensor

from milepost.encoding import Encoding, Host, Operands, Positions
from milepost.encodings.cope import Cope
from milepost.encodings.relative import Relative


class CopeWithRelative(Encoding):
    """s_ij = (q_i·k_j + q_i·r[i − j]) / √D + q_i·e[p_ij], gates from q_i·k_j alone.

    That gates do not see the distances, and that r is scaled as q·k is, are the choices of the
    authors' released code.

    Options: those of `cope` and of `relative`.
    """

    paper = "Golovneva et al. 2024, arXiv 2405.18719"
    changes = "adds q·e[p], and q·r[i − j]"
    op_name = "cope"
    variants = ({"first_layer_only": True}, {"val_gates": True})

    def __init__(self, cope: Cope, relative: Relative) -> None:
        super().__init__(cope.host)
        self.cope = cope
        self.relative = relative
        self.op = cope.op

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Those of both."""
        return {**Cope.options(), **Relative.options()}

    @classmethod
    def stack(cls, host: Host, **options: Any) -> list[Encoding]:
        """Each layer's CoPE beside one relative table; where a layer has no CoPE, that alone."""
        relative = Relative(host, **Relative.own(options))
        copes = Cope.stack(host, **Cope.own(options))
        return [cls(cope, relative) if isinstance(cope, Cope) else relative for cope in copes]

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
        """Hand over both tables."""
        counted = self.cope.encode(query, key, value, x=x, positions=positions, state=state)
        scale = counted.params.get("scale", self.host.head_dim**-0.5)
        params = {**counted.params, "relative_table": self.relative.rows(positions.end) * scale}
        return Operands(counted.query, counted.memory, params)
