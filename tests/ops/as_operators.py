"""Kernels as operators of PyTorch: compiled, checkpointed, in functional form, and so on.

Each fused backend's tests have `AsOperators` as their base, and say which its operators are.
"""

from types import ModuleType

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from milepost.ops.inputs import Inputs

from .cases import Case, assert_equal_up_to, cast, floating, gradients, parts
from .exact import FUSED, on, single
from .fused import Fused, every_fused_op


class Watching(TorchDispatchMode):
    """Keeps the operators that run under it, with what they are given."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls.append((function.name(), args))
        return function(*args, **kwargs or {})


def of_query(call, given):
    """The sum of what an op returns, as a function of its queries."""

    def total(query):
        return sum(part.sum() for part in parts(call(**given | {"query": query})))

    return total


class AsOperators(Fused):
    """What is asked of a backend's operators, and what its tests say of them."""

    operator: str  # its name; that of its backward is this and _backward
    scan: ModuleType  # where it is called
    case: Case
    others: tuple[Case, ...]  # what is compiled, is for these too
    device = "cpu"

    @pytest.fixture(autouse=True)
    def checked_shapes(self):
        """In place of the fixture that checks shape annotations, which PyTorch cannot trace."""
        torch.compiler.reset()

    @pytest.fixture
    def seen(self, monkeypatch):
        """What the operator below an op is called with, or would be."""
        calls = []

        def remember(inputs):
            calls.append(tuple(inputs))
            return scan(inputs)

        scan = self.scan.SCAN
        monkeypatch.setattr(self.scan, "SCAN", remember)
        return calls

    def arguments_of(self, op, given, seen):
        self.kernels(op.call)(**given)
        (arguments,) = seen
        seen.clear()
        return arguments

    @property
    def forward(self):
        return getattr(torch.ops.milepost, self.operator)

    @property
    def backward(self):
        return getattr(torch.ops.milepost, f"{self.operator}_backward")

    @every_fused_op
    def test_the_operator_is_what_it_says(self, op, seen):
        """Its schema, its shapes without data, its autograd, and it compiled."""
        for case in (self.case, *self.others):
            arguments = tuple(
                x.requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
                for x in self.arguments_of(op, single(op, case), seen)
            )
            torch.library.opcheck(self.forward.default, arguments)

    @every_fused_op
    def test_its_backward_is_what_it_says(self, op, seen):
        arguments = self.arguments_of(op, single(op, self.case), seen)
        out, residual = self.forward(*arguments)
        of_residual = torch.randn_like(residual) if arguments[0] == "stick_breaking" else None
        arguments = *arguments, True, out, residual, torch.randn_like(out), of_residual
        torch.library.opcheck(self.backward.default, arguments)

    def test_who_watches_sees_the_operators(self, some_op):
        """Unwatched the kernel is called without them: that is faster, and the same."""
        given, call = single(some_op, self.case), self.kernels(some_op.call)
        watching = Watching()
        with watching:
            seen = parts(call(**given)), gradients(call, given)
        names = {name for name, _ in watching.calls}
        assert {f"milepost::{self.operator}", f"milepost::{self.operator}_backward"} <= names
        expected = parts(call(**given)), gradients(call, given)
        torch.testing.assert_close(seen, expected, rtol=0, atol=0)

    def test_a_trace_before_dispatch_has_the_operator(self):
        given, call = single(FUSED["cope"], self.case), self.kernels(FUSED["cope"].call)

        def of_query(query):
            return call(**given | {"query": query})

        graph = make_fx(of_query, pre_dispatch=True)(given["query"])
        assert f"milepost.{self.operator}" in graph.code
        assert torch.equal(graph(given["query"]), of_query(given["query"]))

    def test_a_profile_shows_the_operator(self):
        op = FUSED["cope"]
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            self.kernels(op.call)(**single(op, self.case))
        assert f"milepost::{self.operator}" in {event.key for event in profile.key_averages()}

    def there(self, op, case):
        """Operands where the kernels run."""
        given = single(op, case)
        return given | {
            name: x.to(self.device) for name, x in given.items() if isinstance(x, torch.Tensor)
        }

    @every_fused_op
    def test_it_compiles_whole_with_its_gradients(self, op):
        call = on(self.backend, op)
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
        for case in (self.case, *self.others):
            given = self.there(op, case)
            assert_equal_up_to(0, compiled(**given), call(**given))
            if self.device == "cpu":  # the gradients' fixed weights are there
                found, expected = gradients(compiled, given), gradients(call, given)
                # Gradients of one tensor from several places may be added in another order
                torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)

    def test_a_compiled_op_takes_sequences_that_grow(self):
        graphs = []

        def count(graph, inputs):
            graphs.append(graph)
            return graph.forward

        op = FUSED["cope"]
        call = on(self.backend, op)
        compiled = torch.compile(call, fullgraph=True, backend=count)
        for T in range(4, 9):
            given = self.there(op, Case(S=T, T=T))
            assert_equal_up_to(0, compiled(**given), call(**given))
        assert len(graphs) == 2

    @pytest.mark.parametrize("reentrant", [False, True])
    def test_a_checkpoint_has_the_same_gradients(self, some_op, reentrant):
        given, call = single(some_op, self.case), self.kernels(some_op.call)

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

    @every_fused_op
    def test_autocast_does_not_reach_inside(self, op):
        given, call = single(op, self.case), self.kernels(op.call)

        def under_autocast(**given):
            with torch.autocast(self.device, torch.bfloat16):
                return call(**given)

        assert_equal_up_to(0, under_autocast(**given), call(**given))
        found, expected = gradients(under_autocast, given), gradients(call, given)
        assert all(torch.equal(found[name], expected[name]) for name in expected)

    def test_a_second_derivative_is_refused(self, some_op):
        given = single(some_op, self.case)
        query = given["query"].requires_grad_()
        total = sum(part.square().sum() for part in parts(self.kernels(some_op.call)(**given)))
        (first,) = torch.autograd.grad(total, query, create_graph=True)
        with pytest.raises(RuntimeError, match="backend='reference' has them"):
            torch.autograd.grad(first.square().sum(), query)

    @pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
    def test_without_gradients_it_is_the_same(self, some_op, without):
        given, call = single(some_op, self.case), self.kernels(some_op.call)
        expected = call(**given)
        with without():
            found = call(**given)
            assert_equal_up_to(0, found, expected)
        with without():
            made_there = {
                name: x.clone() if isinstance(x, torch.Tensor) else x for name, x in given.items()
            }
            assert_equal_up_to(0, call(**made_there), expected)

    def test_an_unused_remainder_and_an_unused_output(self):
        """Either of the two alone has its gradient."""
        op = FUSED["stick_breaking"]
        given = single(op, self.case)
        for part in (0, 1):

            def alone(call, part=part):
                return lambda **given: call(**given)[part]

            found = gradients(alone(self.kernels(op.call)), given)
            expected = gradients(alone(op.call), cast(given, torch.float64))
            for name, gradient in expected.items():
                torch.testing.assert_close(found[name].double(), gradient, rtol=0, atol=1e-5)

    def test_only_what_asks_for_a_gradient_has_one(self):
        op = FUSED["cope with everything"]
        given, call = single(op, self.case), self.kernels(op.call)
        expected = gradients(call, given)
        for name in expected:

            def alone(**one):
                return call(**given | one)

            assert torch.equal(gradients(alone, {name: given[name]})[name], expected[name])

    def test_a_mask_has_no_gradient_made_for_it(self):
        """One of a dense bias would be as large as all pairs of every head."""
        op, watching = FUSED["bias dense"], Watching()
        given = single(op, self.case)
        query = given["query"].requires_grad_()
        with watching:
            self.kernels(op.call)(**given).sum().backward()
        backward = f"milepost::{self.operator}_backward"
        (call,) = [given for name, given in watching.calls if name == backward]
        wanted = call[len(Inputs._fields)]  # after all that the forward is given
        assert wanted is False
        assert len(self.backward(*call)) == 3
        assert query.grad is not None

    def test_functional_gradients_are_autograds(self, some_op):
        given = single(some_op, self.case)
        total = of_query(self.kernels(some_op.call), given)
        query = given["query"].clone().requires_grad_()
        (expected,) = torch.autograd.grad(total(query), query)
        assert torch.equal(torch.func.grad(total)(given["query"]), expected)

    def test_a_batch_of_calls_is_a_call_for_each(self, some_op):
        given = single(some_op, self.case)
        total = of_query(self.kernels(some_op.call), given)
        queries = torch.randn(3, *given["query"].shape)
        for function in (total, torch.func.grad(total)):
            found = torch.func.vmap(function)(queries)
            expected = torch.stack([function(query) for query in queries])
            torch.testing.assert_close(found, expected, rtol=0, atol=0)

    def test_a_negated_view_is_negated(self, some_op):
        """PyTorch may keep −x as x and a flag."""
        given, call = single(some_op, self.case), self.kernels(some_op.call)
        names = ("query", "key", "value")
        flagged = given | {name: torch._neg_view(given[name]) for name in names}
        negated = given | {name: -given[name] for name in names}
        found = parts(call(**flagged)), gradients(call, flagged)
        expected = parts(call(**negated)), gradients(call, negated)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
