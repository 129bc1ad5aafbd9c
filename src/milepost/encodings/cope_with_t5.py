"""CoPE beside T5: a number for each bucket of distances, and a vector per count.

Golovneva et al. 2024, arXiv 2405.18719; Raffel et al. 2019, arXiv 1910.10683.
"""

from milepost.composition import Composition
from milepost.encodings.cope import Cope
from milepost.encodings.t5 import T5


class CopeWithT5(Composition):
    """s_ij = scale · q_i·k_j + q_i·e[p_ij] + b[h, bucket(i − j)], gates from q_i·k_j alone.

    Where both `scale` and `convention="equations"` say how q·k is scaled, the latter does.

    Options: those of `cope` and of `t5`.
    """

    paper = Cope.paper
    changes = "adds q·e[p], and a learned b[bucket(i − j)]"
    op_name = "cope_bias"
    parts = (Cope, T5)
