"""The backward of one pair of tiles, the same for the gradients of queries and those of keys."""

import triton
import triton.language as tl

from milepost.ops.triton._kernels import arithmetic
from milepost.ops.triton._kernels.policies import stick_breaking


@triton.jit
def softmax_pair(
    content,
    gate_content,
    d_weights,
    seen,
    top,
    inverse,
    delta,
    carry,
    older,
    given,
    batch,
    head,
    query,
    key,
    tile,
    policy,
    const: tl.constexpr,
    DTYPE: tl.constexpr,
    KEYS: tl.constexpr,
    BAND: tl.constexpr,
    MASKED: tl.constexpr,
):
    """The weights, ∂loss/∂logit, ∂loss/∂(q·k of the gates), and what `Gradients` sums over rows.

    With dl = ∂loss/∂logit and c the count: dc = dl · slope; a gate is part of its own key's count
    and of all older ones, so that ∂loss/∂gate is the sum of dc from the oldest key on.
    """
    gates = content
    if const.COUNTS and BAND:
        gates = arithmetic.make_gates(gate_content * given.gate_scale, const.APPROXIMATE)
        gates = tl.where(seen, gates, 0.0)
    logit, whole, part, slope = policy.logits(
        content * given.scale, gates, carry, given, batch, head, query, key, tile,
        const, KEYS, BAND, MASKED and BAND,
    )  # fmt: skip
    relative = logit - top
    if tl.float32 == DTYPE:
        # Products summed in another order may put a large logit above the highest that the forward
        # saw, and exp2 of that could overflow. NaN stays NaN. In halves no register is left for it.
        relative = tl.minimum(relative, 0.0, propagate_nan=tl.PropagateNan.ALL)
    weights = tl.exp2(relative) * inverse
    if MASKED:
        weights = tl.where(seen, weights, 0.0)
    d_logit = weights * (d_weights - delta)
    d_count = d_logit
    d_gate = d_logit
    if const.COUNTS and BAND:
        # both scales are in base 2
        d_count = d_logit * slope * arithmetic.LN_2
        sums = arithmetic.sum_from_oldest(d_count, older, const.N, KEYS, DTYPE, const.PRECISION)
        d_gate = sums * (gates - gates * gates) * (given.gate_scale * arithmetic.LN_2)
        d_count = d_count.to(DTYPE).to(tl.float32)
    return weights, d_logit, d_count, d_gate, gates, whole, part


@triton.jit
def stick_pair(
    content,
    d_weights,
    seen,
    carry,
    older,
    given,
    const: tl.constexpr,
    DTYPE: tl.constexpr,
    KEYS: tl.constexpr,
):
    """The weights a, u = a · ∂loss/∂a, and ∂loss/∂s = u − β · (Σ u over this key and all older)."""
    weights, _, log_beta = stick_breaking.weights(content * given.scale, seen, carry, const.N, KEYS)
    u = weights * d_weights
    sums = arithmetic.sum_from_oldest(u, older, const.N, KEYS, DTYPE, const.PRECISION)
    d_logit = tl.where(seen, u - tl.exp2(log_beta) * sums, 0.0)
    return weights, u.to(DTYPE).to(tl.float32), d_logit
