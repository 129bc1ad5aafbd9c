"""CoPE beside ALiBi: a slope over the distance, and a vector per count.

Golovneva et al. 2024, arXiv 2405.18719; Press et al. 2021, arXiv 2108.12409.
"""

from milepost.composition import Composition
from milepost.encodings.alibi import Alibi
from milepost.encodings.cope import Cope


class CopeWithAlibi(Composition):
    """s_ij = q_i·k_j / √D + q_i·e[p_ij] − m_h · (i − j), gates from q_i·k_j alone.

    The slope is over tokens; `cope-alibi` has one over counts, and no table.

    Options: those of `cope` and of `alibi`.
    """

    paper = Cope.paper
    changes = "adds q·e[p], and −m·(i − j)"
    op_name = "cope_bias"
    parts = (Cope, Alibi)
