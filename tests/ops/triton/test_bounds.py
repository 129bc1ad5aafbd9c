"""The bounds let no wrong kernel pass: what a mistake would give is further away than they allow.

Mistakes are made in the exact results, which are then rounded once, as a kernel's are.
"""

import pytest
import torch

from milepost.ops import dispatch
from milepost.ops.reference import pairs

from ..cases import Case
from ..exact import FUSED, drawn, exactly
from .exact import too_far

CASE = Case("window", B=1, H=2, G=1, S=37, T=70, D=16, V=16, span=50)
every_dtype = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"]
)


def rounded(given, results):
    """As a kernel returns them."""
    (out, *rest), gradients = results
    slopes = {name: gradient.to(given[name].dtype) for name, gradient in gradients.items()}
    return (out.to(given["value"].dtype), *(part.float() for part in rest)), slopes


@every_dtype
@pytest.mark.parametrize("op", FUSED.values(), ids=FUSED)
def test_what_is_exact_but_for_its_last_rounding_is_within_them(op, dtype):
    given = drawn(op, CASE, dtype)
    assert not too_far(op, given, rounded(given, exactly(op, given)))


def without_a_tile(name, keys):
    def mistake(gradients):
        gradients[name][:, :, keys] = 0

    return mistake


def a_row_off(name, axis):
    def mistake(gradients):
        gradients[name] = gradients[name].roll(1, axis)

    return mistake


def of_one_head(name):
    def mistake(gradients):
        gradients[name] *= 0.5

    return mistake


def one_number_wrong(name):
    def mistake(gradients):
        largest = gradients[name].abs().argmax()
        gradients[name].flatten()[largest] *= 0.5

    return mistake


MISTAKES = {
    "keys of one tile": ("softmax", "key", without_a_tile("key", slice(32, 48))),
    "values of one tile": ("softmax", "value", without_a_tile("value", slice(32, 48))),
    "queries of one tile": ("stick_breaking", "query", without_a_tile("query", slice(16, 32))),
    "the oldest keys": ("stick_breaking", "key", without_a_tile("key", slice(0, 32))),
    "gate keys of one tile": (
        "cope_alibi",
        "gate_keys",
        without_a_tile("gate_keys", slice(32, 48)),
    ),
    "a table by one row": ("cope", "table", a_row_off("table", -2)),
    "a table of distances by one row": ("relative", "table", a_row_off("table", -2)),
    "biases by one distance": ("bias table", "bias", a_row_off("bias", -1)),
    "a dense bias by one key": ("bias dense", "bias", a_row_off("bias", -1)),
    "decay by one key": ("forgetting", "log_f", a_row_off("log_f", -1)),
    "slopes of half of the keys": ("cope_alibi", "slopes", of_one_head("slopes")),
    "keys of one head of two": ("cope", "key", of_one_head("key")),
    "one number of a table": ("cope", "table", one_number_wrong("table")),
    "one number of a bias": ("bias table", "bias", one_number_wrong("bias")),
}


@every_dtype
@pytest.mark.parametrize(("name", "operand", "mistake"), MISTAKES.values(), ids=MISTAKES)
def test_a_wrong_gradient_is_beyond_them(name, operand, mistake, dtype):
    op = FUSED[name]
    given = drawn(op, CASE, dtype)
    results, gradients = exactly(op, given)
    mistake(gradients)
    assert set(too_far(op, given, rounded(given, (results, gradients)))) == {operand}


@every_dtype
@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("cope", {"query", "key"}),
        ("cope with everything", {"position_query", "gate_keys"}),
        ("cope_alibi", {"query", "gate_keys"}),
    ],
)
def test_gates_without_a_gradient_are_beyond_them(name, operands, dtype, monkeypatch):
    op = FUSED[name]
    given = drawn(op, CASE, dtype)
    with monkeypatch.context() as patch:
        cope = dispatch.MODULES["reference"]["cope"]
        patch.setattr(cope, "suffix_sum", lambda x: pairs.suffix_sum(x).detach())
        results = exactly(op, given)
    assert set(too_far(op, given, rounded(given, results))) == operands


@pytest.mark.parametrize(
    ("dtype", "count"),
    [
        (torch.float32, "gates"),
        (torch.float32, "sums"),
        (torch.bfloat16, "sums"),
        (torch.float16, "gates"),
        (torch.float16, "sums"),
    ],
)
def test_counts_in_bf16_are_beyond_them(count, dtype, monkeypatch):
    """Gates that one product in bf16 sums, or sums that are kept in it.

    Of operands in bf16, with as many keys as here, the former is no worse than the roundings that
    are allowed: test_semantics.py has more keys.
    """
    op = FUSED["cope"]
    given = drawn(op, CASE, dtype)
    given["table"] = 10 * given["table"]  # as large as the queries: what counts is seen

    def suffix_sum(x):
        if count == "gates":
            return pairs.suffix_sum(x + (x.bfloat16() - x).detach())
        sums = pairs.suffix_sum(x)
        return sums + (sums.bfloat16() - sums).detach()

    with monkeypatch.context() as patch:
        patch.setattr(dispatch.MODULES["reference"]["cope"], "suffix_sum", suffix_sum)
        results = exactly(op, given)
    assert {"query", "key"} <= set(too_far(op, given, rounded(given, results)))


@every_dtype
def test_a_forward_without_a_tile_is_beyond_them(dtype):
    op = FUSED["stick_breaking"]
    given = drawn(op, CASE, dtype)
    results, gradients = exactly(op, given)
    value = given["value"].clone()
    value[:, :, 16:32] = 0
    (out, _), _ = exactly(op, given | {"value": value})
    assert set(too_far(op, given, rounded(given, ((out, results[1]), gradients)))) == {"out"}
