"""Hard attention: the value of one key alone, the one with the largest logit."""

from torch import Tensor

from milepost.ops import dispatch
from milepost.shapes import check_attention


def hard_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float | None = None,
    start: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Causal attention to one key, trained as if it were softmax attention.

        o_i = v_j*,   j* = argmax_j s_ij,   s_ij = scale · q_i·k_j,   j ≤ i

    The one-hot weights have no gradient of their own. They get that of the softmax weights, the
    straight-through estimator (Bengio et al. 2013, arXiv 1308.3432). Of equal logits the oldest
    key's is taken.

    Args:
        query, key, value, scale, start, backend: as in `softmax_attention`.

    Returns:
        (B, H, S, V) in the dtype of `value`.

    Raises:
        UsageError: a shape, dtype or device does not fit, or the named backend refuses.
    """
    check_attention(query, key, value, start, scale=scale)
    return dispatch.run(
        "hard", backend, query=query, key=key, value=value, scale=scale, start=start
    )
