"""a_ij = exp(s_ij − Σ_{k=j} softplus(s_ik)), from the newest key on, and what is left."""

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from milepost.ops.reference.pairs import (
    content_logits,
    distances,
    per_query_head,
    scale_or_default,
    suffix_sum,
    visible,
)


def attend(
    query: Float[Tensor, "B H S D"],
    key: Float[Tensor, "B G T D"],
    value: Float[Tensor, "B G T V"],
    attend_current: bool,
    scale: float | None,
    start: Int[Tensor, "B S"] | None,
) -> tuple[Float[Tensor, "B H S V"], Float[Tensor, "B H S"]]:
    """Stick-breaking attention: `milepost.ops.stick_breaking_attention`."""
    S, T = query.shape[2], key.shape[2]
    logits = content_logits(query, key, scale_or_default(scale, query))
    seen = visible(S, T, start, query.device)
    if not attend_current:
        seen = seen & (distances(S, T, query.device) > 0)
    # softplus(x) = x to fp64's rounding only above 40; PyTorch's default takes it from 20 on
    breaks = F.softplus(logits, threshold=40).masked_fill(~seen, 0)
    weights = (logits - suffix_sum(breaks)).masked_fill(~seen, float("-inf")).exp()
    out = (weights @ per_query_head(value, query)).to(value.dtype)
    return out, (-breaks.sum(-1)).exp()
