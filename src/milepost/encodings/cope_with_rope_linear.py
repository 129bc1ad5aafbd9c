"""CoPE beside RoPE with position interpolation: slower rotation, and a vector per count.

Golovneva et al. 2024, arXiv 2405.18719; Chen et al. 2023, arXiv 2306.15595.
"""

from milepost.composition import Composition
from milepost.encodings.cope import Cope
from milepost.encodings.rope_linear import RopeLinear


class CopeWithRopeLinear(Composition):
    """s_ij = (R_i q_i)·(R_j k_j) / √D + q_i·e[p_ij], R as in `rope-linear`; else `cope+rope`.

    Counts are not stretched: how many tokens are counted does not depend on how fast pairs turn.

    Options: those of `cope` and of `rope-linear`.
    """

    paper = Cope.paper
    changes = "rotates queries and keys, more slowly, and adds q·e[p]"
    op_name = Cope.op_name
    parts = (Cope, RopeLinear)
    unrotated = "position_query"
