"""CoPE beside RoPE: rotated queries and keys, and contextual positions on top.

Golovneva et al. 2024, arXiv 2405.18719, Table 5 ("CoPE + RoPE" on code).
"""

from milepost.composition import Composition
from milepost.encodings.cope import Cope
from milepost.encodings.rope import Rope


class CopeWithRope(Composition):
    """s_ij = (R_i q_i)·(R_j k_j) / √D + q_i·e[p_ij], gates from the rotated logits.

    The paper does not say which query meets the position table. The rotated one would make the
    term depend on the token's absolute index, which neither encoding does; it is the unrotated.
    So it is that meets the gate keys of sep-keys and val-gates, which are not rotated either.

    Options: those of `cope` and of `rope`.
    """

    paper = Cope.paper
    changes = "rotates queries and keys, and adds q·e[p]"
    op_name = Cope.op_name
    variants = ({"first_layer_only": True}, {"sep_keys": True, "shared": True})
    parts = (Cope, Rope)
    unrotated = "position_query"
