"""The kernels as operators of PyTorch: compiled, checkpointed, in functional form, and so on."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from milepost.errors import UsageError
from milepost.ops import triton
from milepost.ops.triton import _scan

from ..cases import Case, assert_equal_up_to, cast, floating, gradients, parts
from ..exact import FUSED, single
from .exact import DEVICE, kernels

pytestmark = pytest.mark.skipif(triton.missing() is not None, reason=str(triton.missing()))

CASE = Case("window", B=1, H=2, G=1, S=5, T=7, V=3)
every_op = pytest.mark.parametrize("op", FUSED.values(), ids=FUSED)
SOME = ("bias dense", "cope with everything", "stick_breaking")
some_ops = pytest.mark.parametrize("op", [FUSED[name] for name in SOME], ids=SOME)


@pytest.fixture(autouse=True)
def checked_shapes():
    """In place of the fixture that checks shape annotations, which torch.compile cannot trace."""
    torch.compiler.reset()


@pytest.fixture
def seen(monkeypatch):
    """What the operator below an op is called with, or would be."""
    calls = []

    def remember(inputs):
        calls.append(tuple(inputs))
        return scan(inputs)

    scan = _scan.SCAN
    monkeypatch.setattr(_scan, "SCAN", remember)
    return calls


def arguments_of(op, given, seen):
    kernels(op.call)(**given)
    (arguments,) = seen
    seen.clear()
    return arguments


@every_op
def test_the_operator_is_what_it_says(op, seen):
    """Its schema, its shapes without data, its autograd, and it compiled."""
    arguments = tuple(
        x.requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for x in arguments_of(op, single(op, CASE), seen)
    )
    torch.library.opcheck(torch.ops.milepost.gpu_scan.default, arguments)


@every_op
def test_its_backward_is_what_it_says(op, seen):
    arguments = arguments_of(op, single(op, CASE), seen)
    out, residual = torch.ops.milepost.gpu_scan(*arguments)
    of_residual = torch.randn_like(residual) if arguments[0] == "stick_breaking" else None
    arguments = *arguments, True, out, residual, torch.randn_like(out), of_residual
    torch.library.opcheck(torch.ops.milepost.gpu_scan_backward.default, arguments)


class Watching(TorchDispatchMode):
    """Keeps the operators that run under it, with what they are given."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls.append((function.name(), args))
        return function(*args, **kwargs or {})


@some_ops
def test_who_watches_sees_the_operators(op):
    """Unwatched the kernel is called without them: that is faster, and the same."""
    given, call = single(op, CASE), kernels(op.call)
    watching = Watching()
    with watching:
        seen = parts(call(**given)), gradients(call, given)
    names = {name for name, _ in watching.calls}
    assert {"milepost::gpu_scan", "milepost::gpu_scan_backward"} <= names
    torch.testing.assert_close(seen, (parts(call(**given)), gradients(call, given)), rtol=0, atol=0)


@every_op
def test_it_compiles_whole_with_its_gradients(op):
    def call(**given):
        return op.call(**given, backend="triton")

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    given = single(op, CASE)
    given = {name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in given.items()}
    assert_equal_up_to(0, compiled(**given), call(**given))
    if DEVICE == "cpu":  # the gradients' fixed weights are there
        found, expected = gradients(compiled, given), gradients(call, given)
        # Gradients of one tensor from several places may be added in another order
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("reentrant", [False, True])
@some_ops
def test_a_checkpoint_has_the_same_gradients(op, reentrant):
    given, call = single(op, CASE), kernels(op.call)

    def backward(run):
        leaves = {name: x.clone().requires_grad_() for name, x in floating(given).items()}
        sum(part.square().sum() for part in parts(run(**given | leaves))).backward()
        return [leaf.grad for leaf in leaves.values()]

    def checkpointed(**given):
        def again(*operands):
            return call(**dict(zip(given, operands, strict=True)))

        return checkpoint(again, *given.values(), use_reentrant=reentrant)

    for one, other in zip(backward(checkpointed), backward(call), strict=True):
        assert torch.equal(one, other)


@every_op
def test_autocast_does_not_reach_inside(op):
    call = kernels(op.call)

    def under_autocast(**given):
        with torch.autocast(DEVICE, torch.bfloat16):
            return call(**given)

    given = single(op, CASE)
    assert_equal_up_to(0, under_autocast(**given), call(**given))
    found, expected = gradients(under_autocast, given), gradients(call, given)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@some_ops
def test_a_second_derivative_is_refused(op):
    given = single(op, CASE)
    query = given["query"].requires_grad_()
    total = sum(part.square().sum() for part in parts(kernels(op.call)(**given)))
    (first,) = torch.autograd.grad(total, query, create_graph=True)
    with pytest.raises(RuntimeError, match="backend='reference' has them"):
        torch.autograd.grad(first.square().sum(), query)


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
@some_ops
def test_without_gradients_it_is_the_same(op, without):
    given, call = single(op, CASE), kernels(op.call)
    expected = call(**given)
    with without():
        assert_equal_up_to(0, call(**given), expected)


def test_an_unused_remainder_and_an_unused_output():
    """Either of the two alone has its gradient."""
    op = FUSED["stick_breaking"]
    given = single(op, CASE)
    for part in (0, 1):

        def alone(call, part=part):
            return lambda **given: call(**given)[part]

        found = gradients(alone(kernels(op.call)), given)
        expected = gradients(alone(op.call), cast(given, torch.float64))
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name].double(), gradient, rtol=0, atol=1e-5)


def test_only_what_asks_for_a_gradient_has_one():
    op = FUSED["cope with everything"]
    given, call = single(op, CASE), kernels(op.call)
    expected = gradients(call, given)
    for name in expected:

        def alone(**one):
            return call(**given | one)

        assert torch.equal(gradients(alone, {name: given[name]})[name], expected[name])


def test_a_mask_has_no_gradient_made_for_it():
    """One of a dense bias would be as large as all pairs of every head."""
    op, watching = FUSED["bias dense"], Watching()
    given = single(op, CASE)
    query = given["query"].requires_grad_()
    with watching:
        kernels(op.call)(**given).sum().backward()
    (call,) = [given for name, given in watching.calls if name == "milepost::gpu_scan_backward"]
    assert len(torch.ops.milepost.gpu_scan_backward(*call)) == 3
    assert query.grad is not None


def of_query(op, given):
    """The sum of what an op returns, as a function of its queries."""

    def total(query):
        return sum(part.sum() for part in parts(kernels(op.call)(**given | {"query": query})))

    return total


@some_ops
def test_functional_gradients_are_autograds(op):
    given = single(op, CASE)
    total, query = of_query(op, given), given["query"].clone().requires_grad_()
    (expected,) = torch.autograd.grad(total(query), query)
    assert torch.equal(torch.func.grad(total)(given["query"]), expected)


@some_ops
def test_a_batch_of_calls_is_a_call_for_each(op):
    given = single(op, CASE)
    total, queries = of_query(op, given), torch.randn(2, *given["query"].shape)
    for function in (total, torch.func.grad(total)):
        found = torch.func.vmap(function)(queries)
        torch.testing.assert_close(
            found, torch.stack([function(query) for query in queries]), rtol=0, atol=0
        )


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")
def test_derivatives_that_they_lack_are_refused():
    op = FUSED["cope"]
    given = single(op, CASE)
    query, along, total = given["query"], torch.randn_like(given["query"]), of_query(op, given)
    with (
        pytest.raises(UsageError, match="triton refused: has no forward-mode"),
        forward_ad.dual_level(),
    ):
        total(forward_ad.make_dual(query, along))
    once = torch.func.grad(total)
    with pytest.raises(UsageError, match="triton refused: has no second derivatives"):
        torch.func.grad(lambda x: once(x).square().sum())(query)


@some_ops
def test_a_negated_view_is_negated(op):
    """PyTorch may keep −x as x and a flag."""
    given, call = single(op, CASE), kernels(op.call)
    flagged = given | {name: torch._neg_view(given[name]) for name in ("query", "key", "value")}
    negated = given | {name: -given[name] for name in ("query", "key", "value")}
    expected = parts(call(**negated)), gradients(call, negated)
    torch.testing.assert_close(
        (parts(call(**flagged)), gradients(call, flagged)), expected, rtol=0, atol=0
    )
