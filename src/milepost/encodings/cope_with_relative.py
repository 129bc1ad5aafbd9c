"""CoPE beside relative positions: a vector per token distance, and one per contextual position.

Golovneva et al. 2024, arXiv 2405.18719, Table 5 ("CoPE + Relative", the best of its rows).
"""

from typing import Any, ClassVar, cast

from torch import Tensor

from milepost.composition import Composition
from milepost.encoding import Encoding, Operands, Positions
from milepost.encodings.cope import Cope
from milepost.encodings.relative import Relative


class CopeWithRelative(Composition):
    """s_ij = (q_i·k_j + q_i·r[i − j]) / √D + q_i·e[p_ij], gates from q_i·k_j alone.

    That gates do not see the distances, and that r is scaled as q·k is, are the choices of the
    authors' released code.

    Options: those of `cope` and of `relative`.
    """

    paper = Cope.paper
    changes = "adds q·e[p], and q·r[i − j]"
    op_name = Cope.op_name
    variants: ClassVar[tuple[dict[str, Any], ...]] = (
        {"first_layer_only": True},
        {"val_gates": True},
    )
    parts: ClassVar[tuple[type[Encoding], type[Encoding]]] = (Cope, Relative)

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
        counted = self.contextual.encode(query, key, value, x=x, positions=positions, state=state)
        table = cast(Relative, self.token).rows(positions.end)
        scale = counted.params.get("scale", self.host.head_dim**-0.5)
        params = {**counted.params, "relative_table": table * scale}
        return Operands(counted.query, counted.memory, params)
