"""Softmax attention with a forget gate (Lin et al. 2025, FoX)."""

import torch
from torch import Tensor

from milepost.errors import UsageError
from milepost.ops import dispatch
from milepost.shapes import check_attention, check_shape, parameter


def forgetting_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_f: Tensor | None = None,
    *,
    decay: Tensor | None = None,
    scale: float | None = None,
    start: Tensor | None = None,
    skip: bool = True,
    backend: str = "auto",
) -> Tensor:
    """Forgetting attention (arXiv 2503.02130).

        s_ij = scale · q_i·k_j + Σ_{l=j+1}^{i} log f_l = scale · q_i·k_j + Λ_i − Λ_j

    The gate of token l stands between l and everything older, so a token's own gate does not
    weaken the token itself. Λ, the running sum of log f, is differenced in fp64, so that
    precision does not decay with the length.

    Args:
        query, key, value, scale, start, backend: as in `softmax_attention`.
        log_f: (B, H, T), one gate per *query* head, finite and ≤ 0 (not checked; log f = 0
            everywhere is plain attention).
        decay: Λ itself instead of log_f, (B, H, T), best in fp64: for decoding, where a cache keeps
            Λ and a new token adds its gate once. Only differences count, so any constant may be
            missing from it.
        skip: whether a fused backend may leave out keys whose weights, all together, are below
            2⁻²⁴ of the row's, by a bound on them:
            |scale| · ‖q_i‖ · max ‖k_j‖ + Λ_i − min Λ_j + log T.

    Returns:
        (B, H, S, V) in the dtype of `value`.

    Raises:
        UsageError: a shape, dtype or device does not fit, log_f and decay are both given or both
            missing, or the named backend refuses.
    """
    check_attention(query, key, value, start, scale=scale)
    if (log_f is None) == (decay is None):
        given = "both" if log_f is not None else "neither"
        raise UsageError(
            f"give log_f, the gates, or decay, their running sum, got {given}: pass one of the two"
        )
    expected = (*query.shape[:2], key.shape[2])
    axes = "(batch, query heads, keys)"
    if log_f is not None:
        log_f = parameter("log_f", log_f, query)
        check_shape("log_f", log_f, expected, axes=axes)
        with torch.autocast(query.device.type, enabled=False):
            decay = log_f.cumsum(-1, dtype=torch.float64)  # differences lose nothing with length
    elif decay is not None:
        decay = parameter("decay", decay, query, torch.float64)
        check_shape("decay", decay, expected, axes=axes)
    return dispatch.run(
        "forgetting",
        backend,
        query=query,
        key=key,
        value=value,
        decay=decay,
        scale=scale,
        start=start,
        skip=skip,
    )
