"""CoPE beside YaRN: RoPE for longer text, and a vector per count.

Golovneva et al. 2024, arXiv 2405.18719; Peng et al. 2023, arXiv 2309.00071.
"""

from milepost.composition import Composition
from milepost.encodings.cope import Cope
from milepost.encodings.yarn import Yarn


class CopeWithYarn(Composition):
    """s_ij = (R_i q_i)·(R_j k_j) / (t√D) + q_i·e[p_ij], R and t as in `yarn`; else `cope+rope`.

    The gates see the sharper logits, as they see whatever the content term is. The table's term
    keeps its size.

    Options: those of `cope` and of `yarn`.
    """

    paper = Cope.paper
    changes = "rotates queries and keys, slow pairs more slowly, sharpens, and adds q·e[p]"
    op_name = Cope.op_name
    parts = (Cope, Yarn)
    unrotated = "position_query"
