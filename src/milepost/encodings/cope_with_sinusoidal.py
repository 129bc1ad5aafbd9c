"""CoPE beside sinusoidal positions: sines and cosines in the embedding, and a vector per count.

Golovneva et al. 2024, arXiv 2405.18719; Vaswani et al. 2017, arXiv 1706.03762.
"""

from milepost.composition import Composition
from milepost.encodings.cope import Cope
from milepost.encodings.sinusoidal import Sinusoidal


class CopeWithSinusoidal(Composition):
    """x_n ← √dim · x_n + PE(n) at the embedding; s_ij = q_i·k_j / √D + q_i·e[p_ij].

    The gates see the places through the embedding, as queries and keys do.

    Options: those of `cope` and of `sinusoidal`.
    """

    paper = Cope.paper
    changes = "adds sines and cosines to the embedding, and q·e[p]"
    op_name = Cope.op_name
    parts = (Cope, Sinusoidal)
