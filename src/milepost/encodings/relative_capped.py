"""Relative positions where one vector, "far away", stands for every distance past the table.

Shaw, Uszkoreit, Vaswani 2018, arXiv 1803.02155, Sec. 3.2 (clipping); the *relative-capped* of
Golovneva et al. 2024, arXiv 2405.18719, Sec. 5.4 and Fig. 3.
"""

from torch import Tensor

from milepost.encoding import Host, length_or
from milepost.encodings.relative import Relative


class RelativeCapped(Relative):
    """s_ij = q_i·(k_j + e[min(i − j, cap − 1)]) / √D.

    The CoPE paper gives unseen positions "the embedding of the T-th position", T the length it was
    trained on; Shaw caps earlier, at 16. Up to the cap it is `relative`, and a checkpoint of
    either loads into the other.

    Options:
        cap: rows of the table; the model's `max_length` if None.
    """

    changes = "adds q·e[min(i − j, cap − 1)] to the logits"
    variants = ({"cap": 5},)

    def __init__(self, host: Host, *, cap: int | None = None) -> None:
        super().__init__(host, length=length_or(host.max_length, "cap", cap))

    def rows(self, end: int) -> Tensor:
        """The vectors of distances 0 … end − 1; the op repeats the last one."""
        return self.table[:end]
