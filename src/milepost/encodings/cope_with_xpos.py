"""CoPE beside xPos: rotation and decay with distance, and a vector per count.

Golovneva et al. 2024, arXiv 2405.18719; Sun et al. 2022, arXiv 2212.10554.
"""

from milepost.composition import Composition
from milepost.encodings.cope import Cope
from milepost.encodings.xpos import Xpos


class CopeWithXpos(Composition):
    """s_ij = (ζ^(i/B) R_i q_i)·(ζ^(−j/B) R_j k_j) / √D + q_i·e[p_ij], gates from the first term.

    As a far key's content logit decays to 0, its gate goes to 1/2, neither open nor closed.

    Options: those of `cope` and of `xpos`.
    """

    paper = Cope.paper
    changes = "rotates queries and keys, lets their product decay, and adds q·e[p]"
    op_name = Cope.op_name
    parts = (Cope, Xpos)
    unrotated = "position_query"
