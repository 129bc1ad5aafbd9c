"""Hard attention: one key's value, by a loop, and the gradients of softmax attention."""

import pytest
import torch

from milepost.errors import UsageError
from milepost.ops import hard_attention, softmax_attention

from .cases import Case, cast, every_case, gradients, operands


@every_case
def test_it_is_the_value_of_the_largest_logit(case):
    given = operands(case)
    query, key, value, start = given.values()
    out = hard_attention(**given)
    for b in range(case.B):
        for h in range(case.H):
            g = h * case.G // case.H
            for s in range(case.S):
                i = s + case.T - case.S
                first = 0 if start is None else max(0, int(start[b, s]))
                logits = {j: float(query[b, h, s] @ key[b, g, j]) for j in range(first, i + 1)}
                expected = torch.zeros(case.V, dtype=torch.float64)
                if logits:
                    expected = value[b, g, max(logits, key=lambda j: logits[j])]
                assert torch.equal(out[b, h, s], expected)


@every_case
def test_queries_and_keys_get_the_gradients_of_softmax_attention(case):
    """Straight through: Σ_v g·v over the weights is what both pass on to the same softmax."""
    given = operands(case)
    found, expected = gradients(hard_attention, given), gradients(softmax_attention, given)
    for name in ("query", "key"):
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-12)


def test_only_the_chosen_values_get_a_gradient():
    given = operands(Case())
    out = hard_attention(**given)
    found = gradients(hard_attention, given)["value"]
    for b, g, j in torch.cartesian_prod(torch.arange(2), torch.arange(2), torch.arange(6)):
        chosen = (out[b, g] == given["value"][b, g, j]).all(-1).any()
        assert bool(found[b, g, j].any()) == bool(chosen)


def test_of_equals_the_oldest_is_taken():
    given = operands(Case())
    given["query"].zero_()
    out = hard_attention(**given)
    assert torch.equal(out, given["value"][:, :, :1].expand_as(out))


def test_a_large_scale_makes_softmax_attention_of_it():
    given = operands(Case("padding"))
    sharp = softmax_attention(**given, scale=1e6)
    torch.testing.assert_close(hard_attention(**given), sharp, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_output_has_the_dtype_of_the_values(dtype):
    given = cast(operands(Case()), dtype)
    assert hard_attention(**given).dtype == dtype


def test_fused_backends_say_that_they_have_no_kernel():
    given = cast(operands(Case()), torch.float32)
    with pytest.raises(UsageError, match="native refused: has no kernel for hard_attention"):
        hard_attention(**given, backend="native")
