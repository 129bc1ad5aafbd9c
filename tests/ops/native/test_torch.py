"""The kernels as operators of PyTorch: compiled, checkpointed, in functional form, and so on."""

import shutil

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from milepost.ops import native
from milepost.ops.inputs import Inputs
from milepost.ops.native import _scan

from ..cases import Case, assert_equal_up_to, cast, floating, gradients, parts
from ..exact import FUSED, on, single

pytestmark = pytest.mark.skipif(native.isa() is None, reason=str(native.missing()))

CASE = Case("window", H=4, G=2, S=5, T=7, V=3)
every_native_op = pytest.mark.parametrize("op", FUSED.values(), ids=FUSED)


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
    on("native", op)(**given)
    (arguments,) = seen
    seen.clear()
    return arguments


@pytest.mark.parametrize("start", ["window", None])
@every_native_op
def test_the_operator_is_what_it_says(op, start, seen):
    """Its schema, its shapes without data, its autograd, and it compiled."""
    given = single(op, Case(start, H=4, G=2, S=5, T=7, V=3))
    arguments = tuple(
        x.requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for x in arguments_of(op, given, seen)
    )
    torch.library.opcheck(torch.ops.milepost.scan.default, arguments)


class Watching(TorchDispatchMode):
    """Keeps the operators that run under it, with what they are given."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls.append((function.name(), args))
        return function(*args, **kwargs or {})


@every_native_op
def test_who_watches_sees_the_operators(op):
    """Unwatched the kernel is called without them: that is faster, and the same."""
    given, call = single(op, CASE), on("native", op)
    watching = Watching()
    with watching:
        seen = parts(call(**given)), gradients(call, given)
    assert {"milepost::scan", "milepost::scan_backward"} <= {name for name, _ in watching.calls}
    torch.testing.assert_close(seen, (parts(call(**given)), gradients(call, given)), rtol=0, atol=0)


def test_a_trace_before_dispatch_has_the_operator():
    given = single(FUSED["cope"], CASE)

    def call(query):
        return on("native", FUSED["cope"])(**given | {"query": query})

    graph = make_fx(call, pre_dispatch=True)(given["query"])
    assert "milepost.scan" in graph.code
    assert torch.equal(graph(given["query"]), call(given["query"]))


def test_a_profile_shows_the_operator():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        on("native", FUSED["cope"])(**single(FUSED["cope"], CASE))
    assert "milepost::scan" in {event.key for event in profile.key_averages()}


@every_native_op
def test_its_backward_is_what_it_says(op, seen):
    arguments = arguments_of(op, single(op, CASE), seen)
    out, residual = torch.ops.milepost.scan(*arguments)
    of_residual = torch.randn_like(residual) if arguments[0] == "stick_breaking" else None
    arguments = *arguments, True, out, residual, torch.randn_like(out), of_residual
    torch.library.opcheck(torch.ops.milepost.scan_backward.default, arguments)


@every_native_op
def test_it_compiles_whole_with_its_gradients(op):
    call = on("native", op)
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    for case in (CASE, Case(H=2, G=1, S=9, T=9)):
        given = single(op, case)
        assert_equal_up_to(0, compiled(**given), call(**given))
        found, expected = gradients(compiled, given), gradients(call, given)
        # Gradients of one tensor from several places may be added in another order
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.skipif(
    shutil.which("g++") is None or hasattr(native._kernels, "overrun"),
    reason="inductor needs a compiler, and its code does not load beside a sanitizer",
)
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")
def test_inductor_compiles_what_is_around_it():
    op = FUSED["forgetting"]
    given = single(op, CASE)

    def call(**given):
        return 2 * on("native", op)(**given | {"log_f": -given["log_f"].square()})

    compiled = torch.compile(call, fullgraph=True)
    found, expected = gradients(compiled, given), gradients(call, given)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_compiled_op_takes_sequences_that_grow():
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    call = on("native", FUSED["cope"])
    compiled = torch.compile(call, fullgraph=True, backend=count)
    for T in range(4, 9):
        given = single(FUSED["cope"], Case(S=T, T=T))
        assert_equal_up_to(0, compiled(**given), call(**given))
    assert len(graphs) == 2


@pytest.mark.parametrize("reentrant", [False, True])
@every_native_op
def test_a_checkpoint_has_the_same_gradients(op, reentrant):
    given, call = single(op, CASE), on("native", op)

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


@every_native_op
def test_autocast_does_not_reach_inside(op):
    def under_autocast(**given):
        with torch.autocast("cpu", torch.bfloat16):
            return on("native", op)(**given)

    given, call = single(op, CASE), on("native", op)
    assert_equal_up_to(0, under_autocast(**given), call(**given))
    found, expected = gradients(under_autocast, given), gradients(call, given)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@every_native_op
def test_a_second_derivative_is_refused(op):
    given = single(op, CASE)
    query = given["query"].requires_grad_()
    total = sum(part.square().sum() for part in parts(on("native", op)(**given)))
    (first,) = torch.autograd.grad(total, query, create_graph=True)
    with pytest.raises(RuntimeError, match="backend='reference' has them"):
        torch.autograd.grad(first.square().sum(), query)


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
@every_native_op
def test_without_gradients_it_is_the_same(op, without):
    given, call = single(op, CASE), on("native", op)
    expected = call(**given)
    with without():
        found = call(**given)
        assert_equal_up_to(0, found, expected)
    with without():
        made_there = {
            name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in given.items()
        }
        assert_equal_up_to(0, call(**made_there), expected)


def test_an_unused_remainder_and_an_unused_output():
    """Either of the two alone has its gradient."""
    op = FUSED["stick_breaking"]
    given = single(op, CASE)
    for part in (0, 1):

        def alone(backend, part=part):
            return lambda **given: on(backend, op)(**given)[part]

        found = gradients(alone("native"), given)
        expected = gradients(alone("reference"), cast(given, torch.float64))
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name].double(), gradient, rtol=0, atol=1e-5)


def test_only_what_asks_for_a_gradient_has_one():
    op = FUSED["cope with everything"]
    given = single(op, CASE)
    expected = gradients(on("native", op), given)
    for name in expected:

        def call(name=name, **alone):
            return on("native", op)(**given | alone)

        found = gradients(call, {name: given[name]})
        assert torch.equal(found[name], expected[name])


def test_a_mask_has_no_gradient_made_for_it():
    """One of a dense bias would be as large as all pairs of every head."""
    op, watching = FUSED["bias dense"], Watching()
    given = single(op, CASE)
    query = given["query"].requires_grad_()
    with watching:
        on("native", op)(**given).sum().backward()
    (call,) = [given for name, given in watching.calls if name == "milepost::scan_backward"]
    wanted = call[len(Inputs._fields)]  # after all that the forward is given
    assert wanted is False
    assert len(torch.ops.milepost.scan_backward(*call)) == 3
    assert query.grad is not None


@every_native_op
def test_auto_is_the_kernels(op, seen):
    given = single(op, CASE)
    op.call(**given)
    assert len(seen) == 1
    op.call(**given, backend="reference")
    op.call(**cast(given, torch.float64))
    assert len(seen) == 1
