"""torch.compile takes every op whole: choosing a backend breaks no graph."""

import pytest
import torch

from milepost.errors import UsageError
from milepost.ops import softmax_attention

from .cases import OPS, Case, assert_equal_up_to, cast, every_op, gradients, operands


@pytest.fixture(autouse=True)
def checked_shapes():
    """In place of the fixture that checks shape annotations, which torch.compile cannot trace."""
    torch.compiler.reset()


@every_op
def test_an_op_compiles_whole(op):
    compiled = torch.compile(op.call, fullgraph=True, backend="eager")
    for case in (Case(), Case("padding", H=4, S=3)):
        given = op.operands(case)
        assert_equal_up_to(1e-12, compiled(**given), op.call(**given))


def test_gradients_pass_through_a_compiled_op():
    op = OPS["cope with everything"]
    given = op.operands(Case("window"))
    compiled = torch.compile(op.call, fullgraph=True, backend="aot_eager")
    found, expected = gradients(compiled, given), gradients(op.call, given)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-12)


def test_autocast_does_not_reach_inside_a_compiled_op():
    op = OPS["cope with everything"]
    given = cast(op.operands(Case()), torch.float32)
    compiled = torch.compile(op.call, fullgraph=True, backend="eager")
    with torch.autocast("cpu", torch.bfloat16):
        found = compiled(**given)
    assert torch.equal(found, op.call(**given))


def test_sequences_that_grow_are_not_compiled_again_and_again():
    """The second length makes the length a variable; later ones are the same graph."""
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(softmax_attention, fullgraph=True, backend=count)
    for T in range(4, 12):
        given = operands(Case(S=T, T=T))
        assert_equal_up_to(1e-12, compiled(**given), softmax_attention(**given))
    assert len(graphs) == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"backend": "triton"}, "triton refused"),
        ({"start": torch.zeros(2, 5, dtype=torch.int64)}, r"start must have shape .*\(2, 5\)"),
    ],
    ids=["backend", "shape"],
)
def test_a_mistake_is_told_in_a_compiled_function_too(wrong, message):
    compiled = torch.compile(softmax_attention, backend="eager")
    with pytest.raises(UsageError, match=message):
        compiled(**operands(Case()) | wrong)
