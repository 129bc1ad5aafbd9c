"""FoX beside RoPE: rotated queries and keys, and forget gates on top.

Lin et al. 2025, arXiv 2503.02130, which compares FoX with and without it.
"""

from milepost.composition import Composition
from milepost.encodings.fox import Fox
from milepost.encodings.rope import Rope


class FoxWithRope(Composition):
    """s_ij = (R_i q_i)·(R_j k_j) / √D + Σ_{l=j+1}^{i} log f_l.

    Options: those of `fox` and of `rope`.
    """

    paper = Fox.paper
    changes = "rotates queries and keys, and adds the log of the forget gates"
    op_name = Fox.op_name
    parts = (Fox, Rope)
