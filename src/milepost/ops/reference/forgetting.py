"""s_ij = scale · q_i·k_j + Λ_i − Λ_j, Λ the running sum of log f, then softmax."""

from jaxtyping import Float, Int
from torch import Tensor

from milepost.ops.reference.pairs import content_logits, scale_or_default, softmax_sum, visible


def attend(
    query: Float[Tensor, "B H S D"],
    key: Float[Tensor, "B G T D"],
    value: Float[Tensor, "B G T V"],
    decay: Float[Tensor, "B H T"],
    scale: float | None,
    start: Int[Tensor, "B S"] | None,
) -> Float[Tensor, "B H S V"]:
    """Forgetting attention: `milepost.ops.forgetting_attention`."""
    S, T = query.shape[2], key.shape[2]
    logits = content_logits(query, key, scale_or_default(scale, query))
    # Λ is in fp64: fp32 would lose |Λ|·6e-8 of each difference
    faded = decay[..., T - S :, None] - decay[..., None, :]
    return softmax_sum(logits + faded.to(logits.dtype), visible(S, T, start, query.device), value)
