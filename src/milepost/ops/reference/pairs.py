"""What every reference op shares: precision, grouped heads, visibility, the weighted sum."""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def precise(tensor: Tensor) -> Tensor:
    """In the precision that sums are made in: fp32 at least."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def per_query_head(
    tensor: Float[Tensor, "B G T X"], query: Float[Tensor, "B H S D"]
) -> Float[Tensor, "B H T X"]:
    """Keys or values of G heads, repeated for the H / G query heads that share each of them."""
    group = query.shape[1] // tensor.shape[1]
    tensor = precise(tensor)
    return tensor if group == 1 else tensor.repeat_interleave(group, dim=1)


def scale_or_default(scale: float | None, query: Tensor) -> float:
    """`scale`, or 1/√D."""
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def content_logits(
    query: Float[Tensor, "B H S D"], key: Float[Tensor, "B G T D"], scale: float
) -> Float[Tensor, "B H S T"]:
    """scale · q_i·k_j."""
    return scale * precise(query) @ per_query_head(key, query).mT


def distances(S: int, T: int, device: torch.device) -> Int[Tensor, "S T"]:
    """i − j in tokens, negative for keys that come after the query."""
    return torch.arange(T - S, T, device=device)[:, None] - torch.arange(T, device=device)


def visible(
    S: int, T: int, start: Int[Tensor, "B S"] | None, device: torch.device
) -> Bool[Tensor, "#B 1 S T"]:
    """Which keys a query may see: none that come later, none before its `start`."""
    causal = distances(S, T, device) >= 0
    if start is None:
        return causal[None, None]
    return causal & (torch.arange(T, device=device) >= start[:, None, :, None])


def softmax_sum(
    logits: Float[Tensor, "B H S T"],
    seen: Bool[Tensor, "#B #H S T"],
    value: Float[Tensor, "B G T V"],
) -> Float[Tensor, "B H S V"]:
    """Σ_j softmax_j(logits) v_j over the keys seen; zeros where none is."""
    sees = seen.any(-1, keepdim=True)
    # A row that sees no key has a softmax all the same, and gradients, before it is zeroed
    logits = torch.where(seen, logits, float("-inf")).masked_fill(~sees, 0)
    out = logits.softmax(-1) @ per_query_head(value, logits)
    return out.masked_fill(~sees, 0).to(value.dtype)


def suffix_sum(x: Float[Tensor, "B H S T"]) -> Float[Tensor, "B H S T"]:
    """Σ_{k ≥ j} x_k, both ends included: a running sum from the newest key to the oldest."""
    return x.flip(-1).cumsum(-1).flip(-1)
