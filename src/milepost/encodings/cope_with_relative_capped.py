"""CoPE beside capped relative positions: the last vector stands for all distances from there on.

Golovneva et al. 2024, arXiv 2405.18719; Shaw et al. 2018, arXiv 1803.02155, Sec. 3.2 (clipping).
"""

from milepost.encodings.cope import Cope
from milepost.encodings.cope_with_relative import CopeWithRelative
from milepost.encodings.relative_capped import RelativeCapped


class CopeWithRelativeCapped(CopeWithRelative):
    """s_ij = (q_i·k_j + q_i·r[min(i − j, cap − 1)]) / √D + q_i·e[p_ij]; else `cope+relative`.

    Options: those of `cope` and of `relative-capped`.
    """

    changes = "adds q·e[p], and q·r[min(i − j, cap − 1)]"
    variants = ({"cap": 5, "p_max": 3},)
    parts = (Cope, RelativeCapped)
