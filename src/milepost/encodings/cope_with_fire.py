"""CoPE beside FIRE: a learned function of the distance, and a vector per count.

Golovneva et al. 2024, arXiv 2405.18719; Li et al. 2023, arXiv 2310.04418.
"""

from milepost.composition import Composition
from milepost.encodings.cope import Cope
from milepost.encodings.fire import Fire


class CopeWithFire(Composition):
    """s_ij = q_i·k_j / √D + q_i·e[p_ij] + f_θ(ψ(i − j) / ψ(max(L, i)))_h, gates from q_i·k_j alone.

    Both have an option `shared`, which makes one table and one f_θ serve all layers.

    Options: those of `cope` and of `fire`.
    """

    paper = Cope.paper
    changes = "adds q·e[p], and a learned function of (i − j) relative to i"
    op_name = "cope_bias"
    parts = (Cope, Fire)
