"""Attention with an additive position bias: ALiBi, T5, Kerple, FIRE."""

from torch import Tensor

from milepost.errors import UsageError
from milepost.ops import dispatch
from milepost.shapes import check_attention, parameter, shape


def check_bias(bias: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """`bias`, if it is a table over distances or dense, else a `UsageError`."""
    bias = parameter("bias", bias, query)
    B, H, S, _ = query.shape
    T = key.shape[2]
    table = bias.ndim == 2 and bias.shape[0] == H and bias.shape[1] >= 1
    dense = bias.ndim == 4 and bias.shape[0] in (1, B) and bias.shape[1] in (1, H)
    if not (table or (dense and bias.shape[2:] == (S, T))):
        raise UsageError(
            f"bias must be a table (heads, distances) = ({H}, any) or dense "
            f"(batch or 1, heads or 1, queries, keys) = ({B}, {H}, {S}, {T}), got {shape(bias)}"
        )
    return bias


def bias_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    *,
    scale: float | None = None,
    start: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Causal softmax attention with a bias on the logits.

        s_ij = scale · q_i·k_j + b[h, min(i − j, N − 1)]      bias (H, N), a table over distances
        s_ij = scale · q_i·k_j + b[b, h, i, j]                bias (B or 1, H or 1, S, T), dense

    Args:
        query, key, value, scale, start, backend: as in `softmax_attention`.
        bias: a table (H, N), whose last entry stands for every distance past its end, or a dense
            (B or 1, H or 1, S, T) tensor, where only entries at j ≤ i are read. −inf hides a pair.

    Returns:
        (B, H, S, V) in the dtype of `value`.

    Raises:
        UsageError: a shape, dtype or device does not fit, or the named backend refuses.
    """
    check_attention(query, key, value, start, scale=scale)
    bias = check_bias(bias, query, key)
    return dispatch.run(
        "bias", backend, query=query, key=key, value=value, bias=bias, scale=scale, start=start
    )
