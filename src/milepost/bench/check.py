"""Right before fast: what is timed has the outputs and gradients of the reference in fp64.

The shape is odd on purpose: two batches, 133 queries at the end of 201 keys, so that no block size
divides them; 4 query heads share 2 key heads; `start` hides keys, all of them in one row. The
error of a tensor is the norm of the difference over the norm of the exact one. Rounding makes it
1e-6 in fp32 (and 4e-3 in bf16, whose numbers have 8 bits); a wrong slope at one of CoPE's kinks,
which a rounded count may fall on either side of, about 1e-4; a single element that is wrong about
4e-3, a wrong row 3e-2.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from milepost.bench.baselines import MissingError
from milepost.bench.cases import Operands, Shape, floating, operands
from milepost.bench.contenders import REFERENCE, Contender, by
from milepost.errors import UsageError

TOLERANCE = {torch.float32: 1e-3, torch.float16: 5e-3, torch.bfloat16: 3e-2}
QUERIES, KEYS = 133, 201
TABLE_ROWS = 17

RIGHT, WRONG, REFUSED = "right", "wrong", "refused"


def odd_shape(head_dim: int, *, decode: bool) -> Shape:
    """The shape at which an op is checked."""
    return Shape(2, 4, 2, 1 if decode else QUERIES, KEYS, head_dim, TABLE_ROWS)


def odd_operands(op: str, gates: str, head_dim: int, dtype: torch.dtype, decode: bool) -> Operands:
    """Its operands: left padding in one batch, a window and a row without keys in the other."""
    shape = odd_shape(head_dim, decode=decode)
    tokens = torch.arange(KEYS - shape.S, KEYS)
    start = torch.stack([torch.full_like(tokens, KEYS // 20), tokens - KEYS // 2])
    start[1, shape.S // 2] = KEYS
    return operands(op, gates, shape, dtype, seed=2) | {"start": start}


def square_operands(op: str, gates: str, head_dim: int, dtype: torch.dtype) -> Operands:
    """The operands for what takes no `start`, no shared heads and no fewer queries than keys."""
    return operands(
        op, gates, Shape(1, 2, 2, QUERIES, QUERIES, head_dim, TABLE_ROWS), dtype, seed=2
    )


def results(call: Callable[..., Any], given: Operands) -> dict[str, Tensor]:
    """The outputs and the gradients of all the floating operands, by name."""
    contender = Contender(call, given)
    outputs, gradients = contender.forward_and_backward()
    detached = [output.detach() for output in outputs]
    named = dict(zip(("output", "remainder"), detached, strict=False))
    for name, gradient in zip(floating(given), gradients, strict=True):
        named[f"gradient of {name}"] = gradient
    return named


def errors(call: Callable[..., Any], op: str, given: Operands) -> dict[str, float]:
    """The relative error of each output and gradient; infinite where a number is not finite."""
    exact = given | {name: x.double() for name, x in floating(given).items()}
    expected = results(by(op, REFERENCE), exact)
    return {
        name: relative_error(actual, expected[name])
        for name, actual in results(call, given).items()
    }


def relative_error(actual: Tensor, expected: Tensor) -> float:
    if actual.shape != expected.shape or not actual.isfinite().all():
        return math.inf
    difference = (actual.double() - expected).norm()
    return float(difference / expected.norm().clamp_min(torch.finfo(torch.float32).tiny))


def judge(call: Callable[..., Any], op: str, given: Operands) -> dict[str, Any]:
    """The verdict on a call: `right`, `wrong` or `refused`, the errors, and a reason if any."""
    tolerance = TOLERANCE[given["query"].dtype]
    try:
        found = errors(call, op, given)
    except (UsageError, MissingError) as error:
        return {"verdict": REFUSED, "errors": {}, "tolerance": tolerance, "reason": str(error)}
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return {"verdict": WRONG, "errors": {}, "tolerance": tolerance, "reason": reason}
    wrong = [name for name, error in found.items() if not error <= tolerance]
    largest = max(found, key=lambda name: found[name])
    shown = f"{found[largest]:.1e}" if math.isfinite(found[largest]) else "not finite"
    return {
        "verdict": WRONG if wrong else RIGHT,
        # JSON has no infinity: null is a tensor that is not finite, or has another shape
        "errors": {n: error if math.isfinite(error) else None for n, error in found.items()},
        "tolerance": tolerance,
        "reason": f"{', '.join(wrong)}: up to {shown}" if wrong else None,
    }
