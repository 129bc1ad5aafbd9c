"""Plain attention: none, absolute, sinusoidal, RoPE and its scalings, xPos, TAPE."""

from torch import Tensor

from milepost.ops import dispatch
from milepost.shapes import check_attention


def softmax_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float | None = None,
    start: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Causal softmax attention (Vaswani et al. 2017, Eq. 1).

        o_i = Σ_j a_ij v_j,   a_ij = softmax_j(s_ij),   s_ij = scale · q_i·k_j,   j ≤ i

    Args:
        query: (B, H, S, D), any floating dtype.
        key: (B, G, T, D), H a multiple of G, T ≥ S. Query i stands at key i + T − S.
        value: (B, G, T, V).
        scale: of the logits; 1/√D if None.
        start: (B, S) integers: query i of batch b sees keys `start[b, i]` … i + T − S and no
            older ones (left padding, packed documents, sliding windows). A query that may see
            no key at all gets zeros.
        backend: "auto", "reference", "native" or "triton".

    Returns:
        (B, H, S, V) in the dtype of `value`. Sums are made in at least fp32.

    Raises:
        UsageError: a shape, dtype or device does not fit, or the named backend refuses.
    """
    check_attention(query, key, value, start, scale=scale)
    return dispatch.run(
        "softmax", backend, query=query, key=key, value=value, scale=scale, start=start
    )
