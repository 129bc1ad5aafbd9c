"""Softmax attention with a forget gate (Lin et al. 2025, FoX)."""

from torch import Tensor

from milepost.ops import dispatch
from milepost.shapes import check_attention, check_shape, parameter


def forgetting_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_f: Tensor,
    *,
    scale: float | None = None,
    start: Tensor | None = None,
    skip: bool = True,
    backend: str = "auto",
) -> Tensor:
    """Forgetting attention (arXiv 2503.02130, Eqs. 4 to 6).

        s_ij = scale · q_i·k_j + Σ_{l=j+1}^{i} log f_l = scale · q_i·k_j + Λ_i − Λ_j

    The gate of token l stands between l and everything older, so a token's own gate does not
    weaken the token itself. Λ, the running sum of log f, is differenced in fp64, so that
    precision does not decay with the length.

    Args:
        query, key, value, scale, start, backend: as in `softmax_attention`.
        log_f: (B, H, T), one gate per *query* head, finite and ≤ 0 (not checked; log f = 0
            everywhere is plain attention).
        skip: whether a fused backend may leave out keys whose weights, all together, are below
            2⁻²⁴ of the row's, by a bound on them:
            |scale| · ‖q_i‖ · max ‖k_j‖ + Λ_i − min Λ_j + log T.

    Returns:
        (B, H, S, V) in the dtype of `value`.

    Raises:
        UsageError: a shape, dtype or device does not fit, or the named backend refuses.
    """
    check_attention(query, key, value, start, scale=scale)
    log_f = parameter("log_f", log_f, query)
    B, H = query.shape[:2]
    check_shape("log_f", log_f, (B, H, key.shape[2]), axes="(batch, query heads, keys)")
    return dispatch.run(
        "forgetting",
        backend,
        query=query,
        key=key,
        value=value,
        log_f=log_f,
        scale=scale,
        start=start,
        skip=skip,
    )
