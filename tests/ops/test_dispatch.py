"""Which backend runs: names, refusals, and what `auto` takes."""

from types import SimpleNamespace

import pytest
import torch

from milepost import ops
from milepost.errors import UsageError
from milepost.ops import dispatch

from .cases import Case, assert_equal_up_to, every_op, operands

EVERY_NAME = (
    "softmax",
    "bias",
    "relative",
    "cope",
    "cope_alibi",
    "cope_bias",
    "cope_mlp",
    "forgetting",
    "hard",
    "stick_breaking",
)


def kernel(answer, refuses=None):
    """A module as a fused backend has it, which remembers what it was asked with."""
    module = SimpleNamespace(asked=[], ran=[])

    def refusal(**operands):
        module.asked.append(operands)
        return refuses

    def attend(**operands):
        module.ran.append(operands)
        return answer

    module.refusal, module.attend = refusal, attend
    return module


@pytest.fixture
def fused(monkeypatch):
    """`fused(native=module)` gives softmax_attention these fused kernels and no others."""

    def give(**modules):
        for name in dispatch.FUSED:
            found = {"softmax": modules[name]} if name in modules else {}
            monkeypatch.setitem(dispatch.MODULES, name, found)

    give()
    return give


@pytest.mark.parametrize("name", EVERY_NAME)
def test_every_op_has_a_reference(name):
    attend = dispatch.implementation("reference", name).attend
    assert attend.__module__ == f"milepost.ops.reference.{name}"
    assert f"{name}_attention" in ops.__all__


def test_there_are_no_other_ops():
    assert set(ops.__all__) == {f"{name}_attention" for name in EVERY_NAME}


@every_op
def test_every_op_runs_by_reference_when_asked(op):
    given = op.operands(Case())
    assert_equal_up_to(1e-12, op.call(**given, backend="reference"), op.call(**given))


@every_op
def test_triton_refuses_cpu_tensors_unless_it_interprets(op, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(
        UsageError, match=r"^triton refused: needs cuda tensors, got cpu; backend='auto'"
    ):
        op.call(**op.operands(Case()), backend="triton")


def test_native_refuses_tensors_elsewhere():
    given = {name: tensor.to("meta") for name, tensor in operands(Case("window")).items()}
    with pytest.raises(UsageError, match=r"^native refused: needs cpu tensors, got meta"):
        ops.softmax_attention(**given, backend="native")


def test_a_backend_without_a_kernel_says_so(fused):
    with pytest.raises(
        UsageError, match=r"^native refused: has no kernel for softmax_attention in this release"
    ):
        ops.softmax_attention(**operands(Case()), backend="native")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("trition", r"unknown backend 'trition': did you mean 'triton'\? valid: auto, native, "),
        ("Reference", r"did you mean 'reference'\?"),
        ("cuda", "unknown backend 'cuda': .*valid: auto, native, reference, triton$"),
        ("softmax", "unknown backend 'softmax'"),
    ],
)
def test_an_unknown_backend_is_told_the_valid_ones(name, message):
    with pytest.raises(UsageError, match=message):
        ops.softmax_attention(**operands(Case()), backend=name)


def test_auto_is_the_reference_where_there_is_no_kernel(fused):
    given = operands(Case())
    reference = ops.softmax_attention(**given, backend="reference")
    assert torch.equal(ops.softmax_attention(**given), reference)


def test_auto_takes_a_kernel_that_accepts(fused):
    native = kernel(answer := torch.zeros(1))
    fused(native=native)
    given = operands(Case())
    assert ops.softmax_attention(**given, scale=0.5) is answer
    assert native.asked == native.ran == [{**given, "scale": 0.5}]
    assert dispatch.backends("softmax") == ("native",)
    assert dispatch.backends("relative") == ()


def test_auto_falls_back_when_the_kernel_refuses(fused):
    native = kernel(torch.zeros(1), refuses="takes no fp64")
    fused(native=native)
    given = operands(Case())
    reference = ops.softmax_attention(**given, backend="reference")
    assert torch.equal(ops.softmax_attention(**given), reference)
    assert native.asked
    assert not native.ran


def test_auto_does_not_ask_kernels_of_other_devices(fused):
    triton = kernel(torch.zeros(1))
    fused(triton=triton)
    ops.softmax_attention(**operands(Case()))
    assert not triton.asked


def test_auto_never_takes_an_interpreted_kernel(fused, monkeypatch):
    monkeypatch.setattr(dispatch.triton, "interpreted", lambda: True)
    interpreted = kernel(answer := torch.zeros(1))
    fused(triton=interpreted)
    given = operands(Case())
    reference = ops.softmax_attention(**given, backend="reference")
    assert torch.equal(ops.softmax_attention(**given), reference)
    assert not interpreted.asked
    assert ops.softmax_attention(**given, backend="triton") is answer


def test_interpreted_kernels_take_tensors_of_the_cpu_alone(monkeypatch):
    monkeypatch.setattr(dispatch.triton, "interpreted", lambda: True)
    given = {name: tensor.to("meta") for name, tensor in operands(Case("window")).items()}
    with pytest.raises(UsageError, match=r"^triton refused: needs cuda tensors, got meta"):
        ops.softmax_attention(**given, backend="triton")


def test_a_named_backend_runs_its_kernel(fused):
    fused(native=kernel(answer := torch.zeros(1)))
    assert ops.softmax_attention(**operands(Case()), backend="native") is answer


def test_a_named_backend_that_refuses_gives_its_reason(fused):
    fused(native=kernel(torch.zeros(1), refuses="takes no fp64"))
    message = r"^native refused: takes no fp64; backend='auto' takes the fastest that accepts$"
    with pytest.raises(UsageError, match=message):
        ops.softmax_attention(**operands(Case()), backend="native")


def test_the_reference_runs_when_named_though_a_kernel_accepts(fused):
    native = kernel(torch.zeros(1))
    fused(native=native)
    out = ops.softmax_attention(**operands(Case()), backend="reference")
    assert out.shape == (2, 2, 6, 4)
    assert not native.asked


def test_kernels_run_outside_autocast(fused):
    def attend(**operands):
        return torch.is_autocast_enabled("cpu")

    fused(native=SimpleNamespace(attend=attend, refusal=lambda **operands: None))
    with torch.autocast("cpu", torch.bfloat16):
        assert ops.softmax_attention(**operands(Case())) is False


def test_a_backend_is_its_folder():
    found = dispatch.modules("reference")
    assert set(EVERY_NAME) <= set(found)
    assert found["cope"].__name__ == "milepost.ops.reference.cope"
    assert dispatch.modules("no_such_backend") == {}
