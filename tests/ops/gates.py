"""Operands whose gates are open, shut and between, for the tests of what `skip` leaves out."""

import torch

from milepost import ops

from .cases import like_keys, operands, table


def single(given):
    return {name: x if name == "start" or x is None else x.float() for name, x in given.items()}


def cope(case, openness):
    """Gates of σ(openness), and about: every query is 1 on the first axis."""
    given = operands(case) | {"table": 0.1 * table(case, 20), "gate_keys": like_keys(case)}
    given["query"][..., 0] = 1
    given["gate_keys"][..., 0] = openness * case.D**0.5
    return ops.cope_attention, single(given)


def forgetting(case, log_f):
    draws = torch.rand(case.B, case.H, case.T, dtype=torch.float64)
    return ops.forgetting_attention, single(operands(case) | {"log_f": log_f * 2 * draws})


def growing(case, log_f):
    """What no gate does: old keys gain before they fade, and are worth more than newer ones."""
    call, given = forgetting(case, log_f)
    given["log_f"][..., : case.T // 2] *= -1
    return call, given


def stick_breaking(case, logit):
    """Logits of about so much: β above 1/2, or below."""
    given = operands(case)
    given["query"][..., 0] = 1
    given["key"][..., 0] = logit * case.D**0.5
    return ops.stick_breaking_attention, single(given)


GATES = {
    **{f"cope, gates of σ({x})": (cope, x) for x in (-1e4, -5.0, 0.0, 5.0, 1e4)},
    **{f"forgetting, log f of {x}": (forgetting, x) for x in (0.0, -1e-3, -0.1, -1.0, -1e4)},
    "forgetting, log f of 0.3 and then -0.3": (growing, -0.3),
    **{f"stick-breaking, logits of {x}": (stick_breaking, x) for x in (-1e4, -5.0, 0.0, 5.0, 1e4)},
}

# Whose oldest keys no query needs, and what of them may then be NaN
LEFT_OUT = {
    "cope, gate keys": (cope, 3.0, "gate_keys"),
    "forgetting, values": (forgetting, -1.0, "value"),
    "stick-breaking, values": (stick_breaking, 3.0, "value"),
    "stick-breaking, keys": (stick_breaking, 3.0, "key"),
}
