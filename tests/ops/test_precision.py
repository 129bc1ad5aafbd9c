"""Precision: fp32, bf16 and fp16 operands against fp64 of the very same numbers.

The yardstick is the op's equations carried out step by step in the operands' own dtype
(`equations.py`), rounding after every step. An op's error may be twice the yardstick's, plus a
band for what the op cannot avoid, in units of the largest result: one rounding to the dtype of the
result, half a unit in the last place; and a sum of T terms in fp32, T halves of fp32's last place.
"""

import pytest
import torch
from torch import Tensor

from milepost import ops

from . import equations
from .cases import Case, assert_equal_up_to, cast, every_op, gradients, operands, parts, table

every_dtype = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["fp32", "bf16", "fp16"]
)

CASE = Case(B=1, H=2, G=1, S=16, T=32, D=16, V=16)


def rounding(dtype: torch.dtype, largest: Tensor) -> float:
    """Half a unit in the last place of `largest`: the most that one rounding to `dtype` adds."""
    return torch.finfo(dtype).eps / 2 * largest.abs().max().item()


def band(dtype: torch.dtype, largest: Tensor) -> float:
    """One rounding to `dtype`, and a sum of T terms in fp32."""
    return rounding(dtype, largest) + CASE.T * rounding(torch.float32, largest)


def error(found: Tensor, exact: Tensor) -> float:
    assert found.shape == exact.shape
    return (found.double() - exact).abs().max().item()


@every_dtype
@every_op
def test_it_is_as_exact_as_its_equations_in_the_same_dtype(op, dtype):
    """Weights sum to at most 1, so that no output is larger than the largest value."""
    given = cast(op.operands(CASE), dtype)
    exact = parts(op.written(**cast(given, torch.float64)))
    yardstick = parts(op.written(**given))
    found = parts(op.call(**given))
    largest = given["value"].abs().max().clamp(min=1)  # the remainder is at most 1
    for one, other, truth in zip(found, yardstick, exact, strict=True):
        assert error(one, truth) <= 2 * error(other, truth) + band(dtype, largest)


@every_dtype
@every_op
def test_its_gradients_are_too(op, dtype):
    given = cast(op.operands(CASE), dtype)
    exact = gradients(op.written, cast(given, torch.float64))
    yardstick = gradients(op.written, given)
    found = gradients(op.call, given)
    for name, truth in exact.items():
        assert found[name].dtype == dtype
        allowed = 2 * error(yardstick[name], truth) + band(dtype, truth)
        assert error(found[name], truth) <= allowed, name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@every_op
def test_half_types_are_rounded_only_at_the_end(op, dtype):
    """The reference on halves is the reference on the same numbers in fp32, rounded."""
    given = cast(op.operands(CASE), dtype) | {"backend": "reference"}
    for half, single in zip(
        parts(op.call(**given)), parts(op.call(**cast(given, torch.float32))), strict=True
    ):
        assert torch.equal(half, single.to(half.dtype))


@every_dtype
@every_op
def test_the_output_has_the_dtype_of_the_values(op, dtype):
    assert parts(op.call(**cast(op.operands(CASE), dtype)))[0].dtype == dtype


@every_op
def test_parameters_keep_their_own_precision_beside_halves(op):
    """As under autocast: bf16 tokens, fp32 tables, slopes and gates."""
    tokens = ("query", "key", "value", "gate_keys", "position_query")
    given = op.operands(CASE)
    halves = cast({name: given[name] for name in tokens if name in given}, torch.bfloat16)
    mixed = cast(given, torch.float32) | halves
    exact = cast(cast(given, torch.float32) | cast(halves, torch.float32), torch.float64)
    truth = parts(op.call(**exact))
    for one, other in zip(parts(op.call(**mixed)), truth, strict=True):
        assert error(one, other) <= band(torch.bfloat16, given["value"])


@every_op
def test_autocast_does_not_reach_inside(op):
    def under_autocast(**operands):
        with torch.autocast("cpu", torch.bfloat16):
            return op.call(**operands)

    given = cast(op.operands(CASE), torch.float32)
    assert_equal_up_to(0, under_autocast(**given), op.call(**given))
    found, expected = gradients(under_autocast, given), gradients(op.call, given)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_counts_are_exact_past_256(dtype):
    """bf16 cannot hold 257: summed in it, the count would stop there. 600 gates of 1, P = 599."""
    case = Case(B=1, H=1, G=1, S=1, T=600, D=4, V=1)
    given = operands(case)
    given["query"] = torch.tensor([1.0, 0, 0, 0]).expand(1, 1, 1, 4).double()
    given["key"] = torch.zeros(1, 1, 600, 4).double()
    given["value"] = torch.arange(600).double().reshape(1, 1, 600, 1)
    gate_keys = torch.zeros(1, 1, 600, 4).double()
    gate_keys[..., 0] = 100
    given = cast(given | {"gate_keys": gate_keys}, dtype)
    for wanted in (1, 200, 256, 257, 300, 511, 512, 513, 598):
        e = torch.zeros(600, 4)
        e[wanted, 0] = 60  # all of the attention goes to the key whose count this is
        out = ops.cope_attention(**given, table=e, gate_scale=1.0)
        # The query stands at key 599 and counts itself as 1
        assert out.item() == given["value"][0, 0, 600 - wanted].item(), wanted


def test_counts_of_many_small_gates_keep_their_fraction():
    """600 gates of about 1/2 add up to 300, which bf16 holds to ±1 and fp32 to ±1e-5."""
    case = Case(B=1, H=1, G=1, S=2, T=600, D=4, V=4)
    given = operands(case) | {"table": 5 * table(case, 600)}
    given["query"] = 0.1 * given["query"]
    given = cast(given, torch.bfloat16)
    exact = ops.cope_attention(**cast(given, torch.float64))
    found = ops.cope_attention(**given)
    once = rounding(torch.bfloat16, exact)
    assert error(found, exact) <= 1.01 * once  # fp32's own error is below a hundredth of it
    assert error(equations.cope(**given), exact) > 50 * once  # summed in bf16, it is lost


def test_forgetting_far_into_a_sequence_is_as_exact_as_at_its_start():
    """Λ reaches −1e6, where fp32 has steps of 1/16: as differences of it, the logits would too."""
    case = Case(B=1, H=2, G=2, S=32, T=64, D=8, V=8)
    given = operands(case)
    log_f = -0.1 * torch.rand(1, 2, 64, dtype=torch.float64)
    given = cast(given | {"log_f": log_f}, torch.float32)
    near = ops.forgetting_attention(**cast(given, torch.float64))
    given["log_f"][..., 0] = -1e6  # older than every key: it changes no difference
    far = ops.forgetting_attention(**given)
    # fp32: a sum of 8 products makes each logit, one of 64 terms each output
    assert error(far, near) <= (8 + 64) * rounding(torch.float32, given["value"])


def test_stick_breaking_keeps_small_remainders():
    """1 − Σ a, of numbers that add up to 1, would be right to 6e-8 and not to 6e-8 of itself."""
    query, key = torch.ones(1, 1, 1, 4), torch.randn(1, 1, 64, 4)
    _, found = ops.stick_breaking_attention(query, key, key)
    _, exact = ops.stick_breaking_attention(query.double(), key.double(), key.double())
    assert 1e-30 < exact.item() < 1e-15
    # The exponent, some 50, is a sum of 63 terms in fp32
    exponent = exact.log()
    assert abs(found.item() / exact.item() - 1) < (63 + 4) * rounding(torch.float32, exponent)
