"""s_ij = scale · q_i·k_j, then the key of the largest; gradients as if it were softmax."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from milepost.ops.reference.pairs import (
    content_logits,
    per_query_head,
    scale_or_default,
    visible,
)


def attend(
    query: Float[Tensor, "B H S D"],
    key: Float[Tensor, "B G T D"],
    value: Float[Tensor, "B G T V"],
    scale: float | None,
    start: Int[Tensor, "B S"] | None,
) -> Float[Tensor, "B H S V"]:
    """Attention to one key: `milepost.ops.hard_attention`."""
    logits = content_logits(query, key, scale_or_default(scale, query))
    seen = visible(query.shape[2], key.shape[2], start, query.device)
    sees = seen.any(-1, keepdim=True)
    logits = logits.masked_fill(~seen, float("-inf")).masked_fill(~sees, 0)
    soft = logits.softmax(-1)
    largest = logits.argmax(-1, keepdim=True)
    one = torch.zeros_like(soft).scatter(-1, largest, 1.0)
    # soft − soft is 0 to the bit, so that the one value comes out unrounded
    weights = one + (soft - soft.detach())
    out = weights @ per_query_head(value, query)
    return out.masked_fill(~sees, 0).to(value.dtype)
