"""CoPE beside randomised positions: random places, and a vector per count.

Golovneva et al. 2024, arXiv 2405.18719; Ruoss et al. 2023, arXiv 2305.16843.
"""

from milepost.composition import Composition
from milepost.encodings.cope import Cope
from milepost.encodings.randomized import Randomized


class CopeWithRandomized(Composition):
    """s_ij = (R_{r_i} q_i)·(R_{r_j} k_j) / √D + q_i·e[p_ij], r as in `randomized`.

    Counts are of tokens, not of places: a gap between places counts nothing.

    Options: those of `cope` and of `randomized`.
    """

    paper = Cope.paper
    changes = "replaces positions by a random sorted subset, and adds q·e[p]"
    op_name = Cope.op_name
    parts = (Cope, Randomized)
    unrotated = "position_query"
