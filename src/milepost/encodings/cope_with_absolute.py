"""CoPE beside learned absolute positions: a vector per place in the embedding, and one per count.

Golovneva et al. 2024, arXiv 2405.18719; Gehring et al. 2017, arXiv 1705.03122.
"""

from milepost.composition import Composition
from milepost.encodings.absolute import Absolute
from milepost.encodings.cope import Cope


class CopeWithAbsolute(Composition):
    """x_i ← x_i + p_i at the embedding; s_ij = q_i·k_j / √D + q_i·e[p_ij].

    The gates see the places through the embedding, as queries and keys do.

    Options: those of `cope` and of `absolute`.
    """

    paper = Cope.paper
    changes = "adds a learned vector per position to the embedding, and q·e[p]"
    op_name = Cope.op_name
    parts = (Cope, Absolute)
