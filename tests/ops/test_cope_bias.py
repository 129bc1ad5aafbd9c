"""CoPE beside a bias, against its equation and against the two ops that it holds."""

import pytest
import torch

from milepost import ops
from milepost.errors import UsageError
from milepost.ops import cope_bias_attention

from . import equations
from .cases import Case, assert_equal_up_to, cast, check, every_case, like_keys, operands, table


def written(query, key, value, table, bias, *, start=None, **cope):
    """The equation: the bias is what attention with it adds to a logit, whatever else is there."""

    def logits_of(call):
        """The logits of `call`, from its weights of one-hot values, up to a constant per row."""
        B, G, T = key.shape[:3]
        one_hot = torch.eye(T, dtype=value.dtype).expand(B, G, T, T)
        return call(one_hot).log()

    positions = logits_of(lambda v: equations.cope(query, key, v, table, start=start, **cope))
    zero = torch.zeros_like(query)
    by_bias = logits_of(lambda v: equations.bias(zero, key, v, bias, start=start))
    weights = (positions + by_bias).softmax(-1).nan_to_num()
    return weights @ value.repeat_interleave(query.shape[1] // key.shape[1], dim=1)


def biases(case):
    return {
        "table": torch.randn(case.H, 4, dtype=torch.float64),
        "long table": torch.randn(case.H, case.T + 3, dtype=torch.float64),
        "dense": torch.randn(case.B, case.H, case.S, case.T, dtype=torch.float64),
        "dense, one for all": torch.randn(1, 1, case.S, case.T, dtype=torch.float64),
    }


@every_case
@pytest.mark.parametrize("kind", list(biases(Case())))
def test_it_is_its_equation(case, kind):
    given = operands(case) | {"table": table(case), "bias": biases(case)[kind]}
    assert_equal_up_to(1e-12, cope_bias_attention(**given), written(**given))


def test_scales_and_gate_keys_are_those_of_cope():
    case = Case(H=4, G=2)
    given = operands(case) | {
        "table": table(case, per_head=True),
        "bias": biases(case)["table"],
        "gate_keys": like_keys(case),
        "scale": 0.7,
        "gate_scale": 1.3,
        "position_scale": -0.5,
    }
    assert_equal_up_to(1e-12, cope_bias_attention(**given), written(**given))


@every_case
def test_without_a_bias_it_is_cope_attention(case):
    given = operands(case) | {"table": table(case)}
    zero = torch.zeros(case.H, 1, dtype=torch.float64)

    def without(**operands):
        return cope_bias_attention(**operands, bias=zero)

    check(without, equations.cope, given)


@every_case
def test_without_a_table_it_is_bias_attention(case):
    given = operands(case) | {"bias": biases(case)["dense"]}
    zero = torch.zeros(3, case.D, dtype=torch.float64)

    def without(**operands):
        return cope_bias_attention(**operands, table=zero)

    check(without, equations.bias, given)


def test_a_pair_that_the_bias_hides_is_counted_all_the_same():
    case = Case()
    given = operands(case) | {"table": table(case)}
    bias = torch.zeros(case.H, 6, dtype=torch.float64)
    bias[:, 2] = float("-inf")
    hidden = cope_bias_attention(**given, bias=bias)
    far = cope_bias_attention(**given, bias=bias.clamp(min=-1e4))
    torch.testing.assert_close(hidden, far, rtol=0, atol=1e-12)


def test_fused_backends_say_that_they_have_no_kernel():
    given = cast(operands(Case()) | {"table": table(Case())}, torch.float32)
    bias = torch.zeros(2, 4)
    with pytest.raises(UsageError, match="native refused: has no kernel for cope_bias_attention"):
        cope_bias_attention(**given, bias=bias, backend="native")
    found = cope_bias_attention(**given, bias=bias)
    torch.testing.assert_close(found, ops.cope_attention(**given, backend="reference"))


def test_a_bias_of_another_shape_is_named():
    given = operands(Case()) | {"table": table(Case())}
    with pytest.raises(UsageError, match=r"bias must be a table \(heads, distances\) = \(2, any\)"):
        cope_bias_attention(**given, bias=torch.zeros(3, 4, dtype=torch.float64))
