"""Operands for the ops' tests: the grid of shapes, and every op with what it takes."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from milepost import ops

from . import equations


@dataclass(frozen=True)
class Case:
    """The shapes of one call, and the kind of `start` that it has, `span` tokens long."""

    start: str | None = None
    B: int = 2
    H: int = 2
    G: int = 2
    S: int = 6
    T: int = 6
    D: int = 4
    V: int = 4
    span: int = 3


GRID = {
    "S=T": Case(),
    "S<T": Case(S=3, T=7),
    "S=1": Case(S=1, T=7),
    "one token": Case(S=1, T=1),
    "grouped": Case(H=4, G=2),
    "one key head": Case(H=4, G=1, S=4),
    "other V": Case(V=7),
    "padding": Case("padding"),
    "padding, S<T, grouped": Case("padding", B=3, H=4, G=2, S=3),
    "window": Case("window"),
    "packed": Case("packed", S=8, T=8),
    "rows with no key": Case("no key", S=5, V=3),
}

every_case = pytest.mark.parametrize("case", [pytest.param(c, id=name) for name, c in GRID.items()])


every_table = pytest.mark.parametrize(
    ("rows", "per_head"),
    [(1, True), (3, False), (3, True), (40, False)],
    ids=["one row", "3 rows", "3 rows per head", "40 rows"],
)


def start_of(case: Case) -> Tensor | None:
    """The first key that each query may see."""

    def first(b: int, i: int) -> int:
        if case.start == "padding":
            return (0, case.span, case.span // 3)[b]  # keys before this one are padding
        if case.start == "window":
            return i - case.span + 1  # so many keys at most; negative for the first rows
        if case.start == "packed":
            return i - (i + b) % case.span  # documents of so many tokens
        assert case.start == "no key"
        return i + 1 if (i + b) % 2 else i // 2

    if case.start is None:
        return None
    tokens = range(case.T - case.S, case.T)
    return torch.tensor([[first(b, i) for i in tokens] for b in range(case.B)])


def operands(case: Case) -> dict[str, Any]:
    """Query, key, value and start."""
    draw = {"dtype": torch.float64}
    return {
        "query": torch.randn(case.B, case.H, case.S, case.D, **draw),
        "key": torch.randn(case.B, case.G, case.T, case.D, **draw),
        "value": torch.randn(case.B, case.G, case.T, case.V, **draw),
        "start": start_of(case),
    }


def like_keys(case: Case) -> Tensor:
    return torch.randn(case.B, case.G, case.T, case.D, dtype=torch.float64)


def like_queries(case: Case) -> Tensor:
    return torch.randn(case.B, case.H, case.S, case.D, dtype=torch.float64)


def table(case: Case, rows: int = 4, *, per_head: bool = False) -> Tensor:
    heads = (case.H,) if per_head else ()
    return torch.randn(*heads, rows, case.D, dtype=torch.float64)


def log_f(case: Case) -> Tensor:
    return torch.randn(case.B, case.H, case.T, dtype=torch.float64).sigmoid().log()


def network(case: Case, hidden: int = 5) -> dict[str, Tensor]:
    return {
        "weight_in": torch.randn(hidden, dtype=torch.float64),
        "bias_in": torch.randn(hidden, dtype=torch.float64),
        "weight_out": torch.randn(hidden, case.D, dtype=torch.float64),
    }


@dataclass(frozen=True)
class Op:
    """An op, its equations, and what it takes beside query, key, value and start."""

    call: Callable[..., Any]
    written: Callable[..., Any]
    extra: Callable[[Case], dict[str, Any]] = lambda case: {}

    def operands(self, case: Case) -> dict[str, Any]:
        return operands(case) | self.extra(case)


OPS = {
    "softmax": Op(ops.softmax_attention, equations.softmax),
    "bias table": Op(
        ops.bias_attention,
        equations.bias,
        lambda case: {"bias": torch.randn(case.H, 4, dtype=torch.float64)},
    ),
    "bias dense": Op(
        ops.bias_attention,
        equations.bias,
        lambda case: {"bias": torch.randn(case.B, case.H, case.S, case.T, dtype=torch.float64)},
    ),
    "relative": Op(ops.relative_attention, equations.relative, lambda case: {"table": table(case)}),
    "cope": Op(ops.cope_attention, equations.cope, lambda case: {"table": table(case)}),
    "cope with everything": Op(
        ops.cope_attention,
        equations.cope,
        lambda case: {
            "table": table(case, per_head=True),
            "gate_keys": like_keys(case),
            "position_query": like_queries(case),
            "relative_table": table(case, 3),
            "scale": 1.4 / math.sqrt(case.D),
            "gate_scale": 1.2 / math.sqrt(case.D),
            "position_scale": 0.5,
        },
    ),
    "cope_alibi": Op(
        ops.cope_alibi_attention,
        equations.cope_alibi,
        lambda case: {
            "slopes": torch.randn(case.H, dtype=torch.float64),
            "gate_keys": like_keys(case),
        },
    ),
    "cope_mlp": Op(
        ops.cope_mlp_attention,
        equations.cope_mlp,
        lambda case: {**network(case), "gate_keys": like_keys(case)},
    ),
    "forgetting": Op(
        ops.forgetting_attention, equations.forgetting, lambda case: {"log_f": log_f(case)}
    ),
    "stick_breaking": Op(ops.stick_breaking_attention, equations.stick_breaking),
    "stick_breaking, current too": Op(
        ops.stick_breaking_attention,
        equations.stick_breaking,
        lambda case: {"attend_current": True},
    ),
}

every_op = pytest.mark.parametrize("op", [pytest.param(op, id=name) for name, op in OPS.items()])

# Which operands change with the batch, with the keys and with the queries, and on which axis
BATCHED = ("query", "key", "value", "gate_keys", "position_query", "log_f", "start")
OVER_KEYS = ("key", "value", "gate_keys", "log_f")
OVER_QUERIES = {"query": 2, "position_query": 2, "start": 1}


def floating(given: dict[str, Any]) -> dict[str, Tensor]:
    """The operands that have gradients."""
    return {
        name: operand
        for name, operand in given.items()
        if isinstance(operand, Tensor) and operand.dtype.is_floating_point
    }


def cast(given: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """The operands with every floating one in `dtype`."""
    return given | {name: operand.to(dtype) for name, operand in floating(given).items()}


def parts(result: Any) -> tuple[Tensor, ...]:
    """What an op returned, as a tuple."""
    return result if isinstance(result, tuple) else (result,)


def cotangents(results: tuple[Tensor, ...]) -> list[Tensor]:
    """A fixed weight for every number that an op returned, which every dtype holds."""
    generator = torch.Generator().manual_seed(1)
    draws = (torch.randn(result.shape, generator=generator) for result in results)
    return [draw.bfloat16().double() for draw in draws]


def gradients(call: Callable[..., Any], given: dict[str, Any]) -> dict[str, Tensor]:
    """For each floating operand, the gradient of a fixed weighted sum of all that is returned."""
    leaves = {name: x.detach().clone().requires_grad_() for name, x in floating(given).items()}
    results = parts(call(**given | leaves))
    total = sum(
        (result.double() * weight).sum()
        for result, weight in zip(results, cotangents(results), strict=True)
    )
    found = torch.autograd.grad(total, list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


def assert_equal_up_to(tolerance: float, actual: Any, expected: Any) -> None:
    for one, other in zip(parts(actual), parts(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=tolerance)


def check(call: Callable[..., Any], written: Callable[..., Any], given: dict[str, Any]) -> None:
    """`call`, by the reference backend, is `written` to 1e-12, and its gradients are to 1e-11."""

    def by_reference(**operands: Any) -> Any:
        return call(**operands, backend="reference")

    assert_equal_up_to(1e-12, by_reference(**given), written(**given))
    actual, expected = gradients(by_reference, given), gradients(written, given)
    for name in expected:
        torch.testing.assert_close(
            actual[name],
            expected[name],
            rtol=0,
            atol=1e-11,
            msg=lambda text, name=name: f"gradient of {name}: {text}",
        )


def last(case: Case, S: int, given: dict[str, Any]) -> dict[str, Any]:
    """The operands of the last S queries alone, over all the keys."""
    given = dict(given)
    for name, axis in OVER_QUERIES.items():
        if given.get(name) is not None:
            given[name] = given[name].narrow(axis, case.S - S, S)
    if "bias" in given and given["bias"].ndim == 4:
        given["bias"] = given["bias"][:, :, case.S - S :]
    return given
