"""Pairwise attention: the only code of the library whose cost is quadratic.

Every op is one loop over the keys, newest first, with a small running state:

    op              carried along the keys        logit
    softmax         –                             s
    bias            –                             s + b
    relative        c ← c + 1                     s + z[min(c, P)]
    cope            c ← c + σ(gate logit)         s + z[min(c, P)], interpolated
    cope_bias       c ← c + σ(gate logit)         s + z[min(c, P)] + b
    cope_alibi      c ← c + σ(gate logit)         s + m·c
    cope_mlp        c ← c + σ(gate logit)         s + q·mlp(c)
    forgetting      c ← c + log f                 s + c
    stick_breaking  c ← c + softplus(s)           s − c, and no softmax
    hard            –                             s, and the largest alone

The functions here check their operands and choose a backend; `reference/` holds the equations.
"""

from milepost.ops.bias import bias_attention
from milepost.ops.cope import (
    cope_alibi_attention,
    cope_attention,
    cope_bias_attention,
    cope_mlp_attention,
)
from milepost.ops.forgetting import forgetting_attention
from milepost.ops.hard import hard_attention
from milepost.ops.relative import relative_attention
from milepost.ops.softmax import softmax_attention
from milepost.ops.stick_breaking import stick_breaking_attention

__all__ = [
    "bias_attention",
    "cope_alibi_attention",
    "cope_attention",
    "cope_bias_attention",
    "cope_mlp_attention",
    "forgetting_attention",
    "hard_attention",
    "relative_attention",
    "softmax_attention",
    "stick_breaking_attention",
]
