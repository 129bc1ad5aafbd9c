"""CoPE beside RoPE with an NTK-aware base: slower slow pairs, and a vector per count.

Golovneva et al. 2024, arXiv 2405.18719; Peng et al. 2023, arXiv 2309.00071.
"""

from milepost.composition import Composition
from milepost.encodings.cope import Cope
from milepost.encodings.rope_ntk import RopeNtk


class CopeWithRopeNtk(Composition):
    """s_ij = (R_i q_i)·(R_j k_j) / √D + q_i·e[p_ij], R as in `rope-ntk`; else `cope+rope`.

    Counts are not stretched: how many tokens are counted does not depend on how fast pairs turn.

    Options: those of `cope` and of `rope-ntk`.
    """

    paper = Cope.paper
    changes = "rotates queries and keys, slow pairs more slowly, and adds q·e[p]"
    op_name = Cope.op_name
    parts = (Cope, RopeNtk)
    unrotated = "position_query"
