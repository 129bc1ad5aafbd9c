"""CoPE beside KERPLE: a kernel of the distance, and a vector per count.

Golovneva et al. 2024, arXiv 2405.18719; Chi et al. 2022, arXiv 2205.09921.
"""

from milepost.composition import Composition
from milepost.encodings.cope import Cope
from milepost.encodings.kerple import Kerple


class CopeWithKerple(Composition):
    """s_ij = q_i·k_j / √D + q_i·e[p_ij] − r₁ log(1 + r₂ (i − j)), gates from q_i·k_j alone.

    Options: those of `cope` and of `kerple`.
    """

    paper = Cope.paper
    changes = "adds q·e[p], and −r₁ log(1 + r₂(i − j))"
    op_name = "cope_bias"
    parts = (Cope, Kerple)
