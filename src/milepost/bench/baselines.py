"""What others would run in an op's place: PyTorch's attention, and CoPE as it is published.

The published forms of CoPE write out all pairs, several times over. `PAIR_BUFFERS` is how many
numbers of 4 bytes they and the reference backend hold for each pair at the peak of
forward + backward, as `milepost bench cpu` measured it, rounded up; what needs more memory than
the limit of a run is left out of it, with the reason.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

PAIR_BUFFERS = {"listing": 24, "x-transformers": 24, "reference": 24}


def sdpa(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """PyTorch's own causal attention; a single query is the newest token and sees every key."""
    return F.scaled_dot_product_attention(query, key, value, is_causal=query.shape[2] > 1)


def listing(query: Tensor, key: Tensor, value: Tensor, table: Tensor) -> Tensor:
    """CoPE as in Listing 1 of arXiv 2405.18719, with the attention around it.

    Everything is in the dtype of the queries, as there. As many queries as keys.
    """
    content = query @ key.mT / math.sqrt(query.shape[-1])
    later = torch.ones_like(content[0, 0], dtype=torch.bool).triu(1)
    content = content.masked_fill(later, float("-inf"))
    # Eqs. 3 and 4: from each key up to the query, the gates add up to its position
    gates = content.sigmoid()
    position = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=table.shape[0] - 1)
    # Eqs. 5 and 8: query · table at whole positions, interpolated between the two neighbours
    above, below = position.ceil().long(), position.floor().long()
    at_whole = query @ table.to(query.dtype).mT
    part = position - below
    contextual = at_whole.gather(-1, above) * part + at_whole.gather(-1, below) * (1 - part)
    return (content + contextual).softmax(-1) @ value


class MissingError(Exception):
    """A baseline that cannot be had here; the message is the reason."""


class XTransformers:
    """CoPE with the class of x-transformers, and the attention around it.

    The class takes queries and masked logits, and returns what is added to the logits.
    """

    def __init__(self, rows: int, head_dim: int, heads: int) -> None:
        try:
            from x_transformers.x_transformers import CoPE
        except ImportError as error:
            raise MissingError(
                f"x-transformers is not installed ({error}); to compare with it: "
                "pip install x-transformers"
            ) from error
        try:
            self.module: Any = CoPE(dim=head_dim, heads=heads, max_pos=rows)
        except TypeError as error:
            raise MissingError(f"this x-transformers has another CoPE ({error})") from error

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, table: Tensor) -> Tensor:
        """As many queries as keys; the table takes the place of the module's own."""
        content = query @ key.mT / math.sqrt(query.shape[-1])
        later = torch.ones_like(content[0, 0], dtype=torch.bool).triu(1)
        content = content.masked_fill(later, -torch.finfo(content.dtype).max)
        parameters = {"pos_emb": table.to(query.dtype)}
        contextual = torch.func.functional_call(self.module, parameters, (query, content))
        return (content + contextual).softmax(-1) @ value
