"""Forgetting attention against its equation."""

import pytest
import torch

from milepost.errors import UsageError
from milepost.ops import forgetting_attention

from . import equations
from .cases import Case, check, every_case, gradients, log_f, operands


@every_case
def test_it_is_its_equation(case):
    check(forgetting_attention, equations.forgetting, operands(case) | {"log_f": log_f(case)})


def test_scale_leaves_the_gates_alone():
    case = Case(H=4, G=2)
    given = operands(case) | {"log_f": log_f(case), "scale": 0.37}
    check(forgetting_attention, equations.forgetting, given)


def test_a_token_is_not_weakened_by_its_own_gate():
    """The output of a query that sees itself alone does not depend on any gate."""
    given = operands(Case()) | {"log_f": log_f(Case())}
    out = forgetting_attention(**given)
    torch.testing.assert_close(out[:, :, 0], given["value"][:, :, 0], rtol=0, atol=1e-12)
    given["log_f"][..., 0] -= 3  # older than every token, so that no pair is across it
    torch.testing.assert_close(forgetting_attention(**given), out, rtol=0, atol=1e-12)


def test_a_shut_gate_forgets_all_that_is_older():
    given = operands(Case()) | {"log_f": log_f(Case())}
    given["log_f"][..., 3] = -1e4
    from_the_gate_on = {
        name: operand[:, :, 3:] for name, operand in given.items() if name != "start"
    }
    torch.testing.assert_close(
        forgetting_attention(**given)[:, :, 3:],
        forgetting_attention(**from_the_gate_on),
        rtol=0,
        atol=1e-11,  # Λ ~ 1e4 in fp64
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gates_in_fp32_beside_any_query_keep_their_gradient(dtype):
    given = operands(Case()) | {"log_f": log_f(Case())}
    exact = gradients(forgetting_attention, given)["log_f"]
    given |= {name: given[name].to(dtype) for name in ("query", "key", "value")}
    given["log_f"] = given["log_f"].float()
    found = gradients(forgetting_attention, given)["log_f"]
    assert found.dtype == torch.float32
    assert (found - exact).abs().max() < 8 * torch.finfo(dtype).eps * exact.abs().max()


def test_the_running_sum_may_be_given_instead_of_the_gates():
    case = Case(H=4, G=2)
    given, gates = operands(case), log_f(case)
    expected = forgetting_attention(**given, log_f=gates)
    decay = gates.cumsum(-1) + 17.0  # only differences count
    torch.testing.assert_close(forgetting_attention(**given, decay=decay), expected)


@pytest.mark.parametrize("both", [True, False])
def test_gates_and_their_sum_are_not_given_together(both):
    gates = {"log_f": log_f(Case()), "decay": log_f(Case())} if both else {}
    said = "both" if both else "neither"
    with pytest.raises(UsageError, match=f"log_f, the gates, or decay.*, got {said}: pass one"):
        forgetting_attention(**operands(Case()), **gates)


def test_a_sum_of_another_shape_is_refused():
    decay = log_f(Case())[..., :-1]
    with pytest.raises(UsageError, match=r"decay must have shape \(batch, query heads, keys\)"):
        forgetting_attention(**operands(Case()), decay=decay)
