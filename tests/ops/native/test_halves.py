"""bf16 and fp16 operands: as exact as the reference is on them, in twice its error."""

import pytest
import torch

from milepost.ops import native

from ..cases import Case, cast, gradients, parts
from ..exact import FUSED, SINGLE, exactly, on, single
from .exact import instruction_sets

pytestmark = [
    pytest.mark.skipif(native.isa() is None, reason=str(native.missing())),
    pytest.mark.usefixtures("poisoned"),
]

CASE = Case("window", H=4, G=2, S=70, T=130, D=18, V=23, span=100)
every_native_op = pytest.mark.parametrize("op", FUSED.values(), ids=FUSED)
TOKENS = ("query", "key", "value", "gate_keys", "position_query")


def error(found, exact):
    assert found.shape == exact.shape
    return (found.double() - exact).abs().max().item()


def band(dtype, largest):
    """One rounding to `dtype`, and a sum of T terms in fp32."""
    return (torch.finfo(dtype).eps / 2 + CASE.T * SINGLE) * largest.abs().max().item()


def check(op, given):
    """The kernels are in no more than twice the reference's error, and the band."""
    by_reference = on("reference", op)
    exact, exact_slopes = exactly(op, given)
    yardstick, slopes = parts(by_reference(**given)), gradients(by_reference, given)
    largest = given["value"].abs().max().double().clamp(min=1)  # the remainder is at most 1
    for _ in instruction_sets():
        found, found_slopes = parts(on("native", op)(**given)), gradients(on("native", op), given)
        for one, other, truth in zip(found, yardstick, exact, strict=True):
            assert one.dtype == other.dtype
            assert error(one, truth) <= 2 * error(other, truth) + band(one.dtype, largest)
        for name, truth in exact_slopes.items():
            assert found_slopes[name].dtype == given[name].dtype
            allowed = 2 * error(slopes[name], truth) + band(given[name].dtype, truth)
            assert error(found_slopes[name], truth) <= allowed, name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@every_native_op
def test_it_is_as_exact_as_the_reference(op, dtype):
    check(op, cast(single(op, CASE), dtype))


BESIDE = {
    "fp32 beside bf16": (torch.float32, torch.bfloat16),
    "fp32 beside fp16": (torch.float32, torch.float16),
    "bf16 beside fp32": (torch.bfloat16, torch.float32),
    "fp16 beside bf16": (torch.float16, torch.bfloat16),
}


@pytest.mark.parametrize(("parameters", "tokens"), BESIDE.values(), ids=BESIDE)
@every_native_op
def test_parameters_are_of_a_dtype_of_their_own(op, parameters, tokens):
    """As under autocast: tables, slopes, biases and gates beside queries, keys and values."""
    given = cast(single(op, CASE), parameters)
    check(op, given | cast({name: given[name] for name in TOKENS if name in given}, tokens))
