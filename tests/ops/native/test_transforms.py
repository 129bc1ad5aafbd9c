"""The kernels under torch.func and forward mode, and what `auto` takes where they cannot."""

import pytest
import torch
from torch.autograd import forward_ad

from milepost.errors import UsageError
from milepost.ops import native

from ..cases import Case, parts
from ..exact import FUSED, on, single

pytestmark = pytest.mark.skipif(native.isa() is None, reason=str(native.missing()))

CASE = Case("window", H=4, G=2, S=5, T=7, V=3)
every_native_op = pytest.mark.parametrize("op", FUSED.values(), ids=FUSED)


@pytest.fixture(autouse=True)
def checked_shapes():
    """In place of the fixture that checks shape annotations, which knows no batches of tensors."""


def of_query(op, given, backend):
    """The sum of what an op returns, as a function of its queries."""

    def total(query):
        return sum(part.sum() for part in parts(on(backend, op)(**given | {"query": query})))

    return total


@every_native_op
def test_a_jacobian_is_a_gradient_for_each_output(op):
    given = single(op, CASE)

    def outputs(query):
        return parts(on("native", op)(**given | {"query": query}))[0].sum((1, 2))

    found = torch.func.jacrev(outputs)(given["query"])
    query = given["query"].clone().requires_grad_()
    for at in torch.cartesian_prod(*map(torch.arange, found.shape[:2])).tolist():
        (expected,) = torch.autograd.grad(outputs(query)[tuple(at)], query)
        assert torch.equal(found[tuple(at)], expected)


def test_a_batch_of_gradients_is_refused_with_what_takes_it():
    op = FUSED["cope"]
    given = single(op, CASE)
    query = given["query"].requires_grad_()
    out = on("native", op)(**given)
    with pytest.raises(RuntimeError, match=r"torch\.func\.jacrev does"):
        torch.autograd.grad(out, query, torch.ones(2, *out.shape), is_grads_batched=True)


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")
@every_native_op
def test_what_they_lack_is_refused_and_auto_takes_the_reference(op):
    given = single(op, CASE)
    query, along = given["query"], torch.randn_like(given["query"])

    def tangent(backend):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(
                of_query(op, given, backend)(forward_ad.make_dual(query, along))
            ).tangent

    def product(backend):
        return torch.func.jvp(of_query(op, given, backend), (query,), (along,))[1]

    def second(backend):
        once = torch.func.grad(of_query(op, given, backend))
        return torch.func.grad(lambda x: once(x).square().sum())(query)

    for derivative, lacks in (
        (tangent, "forward-mode"),
        (product, "forward-mode"),
        (second, "second derivatives"),
    ):
        assert torch.equal(derivative("auto"), derivative("reference"))
        with pytest.raises(UsageError, match=f"native refused: has no {lacks}"):
            derivative("native")


def test_a_compiled_functional_gradient_is_of_the_reference():
    torch.compiler.reset()
    op = FUSED["cope"]
    given = single(op, CASE)
    total = of_query(op, given, "auto")

    def derivative(query):
        return torch.func.grad(total)(query)

    found = torch.compile(derivative, fullgraph=True, backend="aot_eager")(given["query"])
    torch.testing.assert_close(found, derivative(given["query"]), rtol=1e-5, atol=1e-6)
