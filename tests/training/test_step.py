"""One step: whatever the micro-batches, the same gradient; what is not finite changes nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from milepost import tasks
from milepost.tasks.task import Batch
from milepost.training.loop import build_model
from milepost.training.settings import Settings
from milepost.training.step import Stepper

Make = Callable[..., Settings]
CPU = torch.device("cpu")


def make_stepper(settings: Settings, dtype: torch.dtype = torch.float32) -> Stepper:
    torch.manual_seed(0)
    task = tasks.build(settings.task, **settings.task_settings)
    return Stepper(settings, task, build_model(settings, task).to(dtype), CPU)


def give(stepper: Stepper, batches: list[Batch]) -> None:
    stepper.data = lambda step: batches  # type: ignore[assignment]


def parameters(stepper: Stepper) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in stepper.model.parameters()]


@pytest.fixture(autouse=True)
def own_randomness() -> object:
    with torch.random.fork_rng():
        yield


@pytest.fixture
def whole() -> Batch:
    """Rows of which very different numbers of tokens are scored."""
    batch = tasks.build("flip-flop", length=16, ignore=0.5).batch(0, "train", 0, 12)
    batch.scored[:4] = False
    batch.scored[0, 3] = True
    return batch


@pytest.mark.parametrize("rows", [2, 4, 6])
@pytest.mark.parametrize("clip", [None, 0.1])
def test_accumulation_is_a_larger_batch(
    rows: int, clip: float | None, whole: Batch, make_settings: Make
) -> None:
    settings = make_settings(model={"dim": 16, "layers": 1, "heads": 2}, clip=clip)
    large = make_stepper(settings, torch.float64)
    give(large, [whole])
    small = make_stepper(replace(settings, accumulate=12 // rows), torch.float64)
    parts = [slice(first, first + rows) for first in range(0, 12, rows)]
    give(small, [Batch(whole.tokens[part], whole.scored[part]) for part in parts])
    for step in range(3):
        one, other = large.take(step), small.take(step)
        assert other.loss == pytest.approx(one.loss, rel=1e-12)
        assert other.grad_norm == pytest.approx(one.grad_norm, rel=1e-10)
        assert other.tokens == one.tokens == 12 * 15
    for ours, theirs in zip(parameters(large), parameters(small), strict=True):
        torch.testing.assert_close(theirs, ours, rtol=1e-9, atol=1e-12)


def test_the_loss_is_over_scored_tokens_only(whole: Batch, make_settings: Make) -> None:
    stepper = make_stepper(make_settings(model={"dim": 16, "layers": 1, "heads": 2}))
    give(stepper, [whole])
    logits = stepper.model(whole.tokens)[:, :-1]
    asked = whole.scored[:, 1:]
    expected = cross_entropy(logits[asked], whole.tokens[:, 1:][asked])
    assert stepper.take(0).loss == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("clip", [None, 1e-3])
def test_gradients_are_clipped_and_their_norm_is_told(
    clip: float | None, make_settings: Make
) -> None:
    stepper = make_stepper(make_settings(clip=clip))
    told = stepper.take(0).grad_norm
    gradients = [p.grad for p in stepper.model.parameters() if p.grad is not None]
    norm = torch.cat([gradient.flatten() for gradient in gradients]).norm().item()
    assert told > 0.01
    assert norm == pytest.approx(told if clip is None else clip, rel=1e-3)


def test_weight_decay_is_on_every_parameter(make_settings: Make) -> None:
    # without a gradient, AdamW multiplies by 1 - lr · weight_decay, and does nothing else
    stepper = make_stepper(make_settings(lr=0.5, weight_decay=0.2, schedule="constant"))
    before = parameters(stepper)
    for parameter in stepper.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    stepper.optimizer.step()
    for ours, theirs in zip(before, parameters(stepper), strict=True):
        torch.testing.assert_close(theirs, 0.9 * ours)


def test_adam_and_adamw_differ_in_the_decay_alone(make_settings: Make) -> None:
    def after(optimizer: str, weight_decay: float) -> list[Tensor]:
        settings = make_settings(optimizer=optimizer, weight_decay=weight_decay)
        stepper = make_stepper(settings)
        stepper.take(0)
        return parameters(stepper)

    def equal(ours: list[Tensor], theirs: list[Tensor]) -> bool:
        return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))

    assert equal(after("adam", 0.0), after("adamw", 0.0))
    assert not equal(after("adam", 0.5), after("adamw", 0.5))


def test_the_learning_rate_is_the_schedule_s(make_settings: Make) -> None:
    stepper = make_stepper(make_settings(steps=4, lr=0.4, schedule="linear"))
    assert [stepper.take(step).lr for step in range(4)] == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert stepper.optimizer.param_groups[0]["lr"] == pytest.approx(0.1)


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_step_that_is_not_finite_changes_nothing(where: str, make_settings: Make) -> None:
    stepper = make_stepper(make_settings())
    assert stepper.take(0).finite
    before = parameters(stepper)
    state = {k: v.clone() for k, v in stepper.optimizer.state_dict()["state"][0].items()}

    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, logits: Tensor) -> Tensor:
            return logits * torch.inf if where == "loss" else logits.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0] * torch.nan

    model = stepper.model

    def broken(tokens: Tensor) -> Tensor:
        logits: Tensor = Broken.apply(model(tokens))  # type: ignore[no-untyped-call]
        return logits

    stepper.call = broken
    taken = stepper.take(1)
    assert not taken.finite
    for ours, theirs in zip(before, parameters(stepper), strict=True):
        assert torch.equal(theirs, ours)
    for name, value in stepper.optimizer.state_dict()["state"][0].items():
        assert torch.equal(value, state[name]), name

    stepper.call = model
    assert stepper.take(2).finite
    assert not torch.equal(before[0], parameters(stepper)[0])


class Recorder(nn.Module):
    """Calls the model, and notes the kinds of numbers that come out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.dtypes: list[torch.dtype] = []

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model(tokens)
        self.dtypes.append(logits.dtype)
        return logits


def test_bf16_is_in_the_model_alone(make_settings: Make) -> None:
    losses = {}
    for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        stepper = make_stepper(make_settings(precision=precision))
        recorder = Recorder(stepper.model)
        stepper.call = recorder
        losses[precision] = stepper.take(0).loss
        assert recorder.dtypes == [dtype]
        assert {p.dtype for p in stepper.model.parameters()} == {torch.float32}
    assert losses["bf16"] != losses["fp32"]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.05)


def test_compiling_is_an_option(make_settings: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", Recorder)
    stepper = make_stepper(make_settings(compile=True))
    stepper.take(0)
    assert isinstance(stepper.call, Recorder)
    assert len(stepper.call.dtypes) == 1
    # names in checkpoints are those of the model as it was written
    assert "embedding.weight" in stepper.model.state_dict()
    assert make_stepper(make_settings()).call is not Recorder


def test_steps_may_be_taken_in_any_order(make_settings: Make) -> None:
    stepper = make_stepper(make_settings())
    first = stepper.take(3)
    stepper.take(0)
    assert torch.equal(stepper.take(3).batches[0].tokens, first.batches[0].tokens)
