"""Evaluation: known answers on known test sets, and runs found again on disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from milepost import evaluate as evaluation
from milepost import tasks
from milepost.errors import UsageError
from milepost.evaluate import evaluate, evaluate_run, load_run
from milepost.training.loop import train
from milepost.training.settings import Settings


class Recalls(nn.Module):
    """Solves flip-flop by looking back so far and no further, and notes what it is asked."""

    def __init__(self, reach: int = 10**6) -> None:
        super().__init__()
        self.reach = reach
        self.asked: list[Tensor] = []

    def forward(self, tokens: Tensor) -> Tensor:
        self.asked.append(tokens)
        column = torch.arange(tokens.shape[1])
        last_write = torch.where(tokens == 0, column, 0).cummax(1).values
        bit = tokens.gather(1, last_write + 1 - (last_write == column).long())
        far = column - last_write > self.reach
        return one_hot(torch.where(far, 7 - bit, bit).clamp(0, 4), 5).float()


@pytest.fixture
def flip_flop() -> Any:
    return tasks.build("flip-flop", length=32).test_sets()


@pytest.mark.parametrize("name", ["in", "sparse", "dense", "length x2", "length x4"])
def test_a_model_that_solves_the_task(name: str, flip_flop: Any) -> None:
    rates = evaluate(Recalls(), flip_flop[name], sequences=70)
    assert rates["token"] == rates["sequence"] == rates["last"] == 0
    assert rates["sequences"] == 70
    assert rates["tokens"] >= 70


def test_a_model_that_forgets(flip_flop: Any) -> None:
    rates = evaluate(Recalls(reach=10), flip_flop["sparse"], sequences=100)
    batches = [flip_flop["sparse"].task.batch(0, "test", step, 64) for step in range(2)]
    tokens = torch.cat([batch.tokens for batch in batches])[:100]
    scored = torch.cat([batch.scored for batch in batches])[:100]
    column = torch.arange(32)
    age = column - torch.where(tokens == 0, column, 0).cummax(1).values
    wrong = scored & (age > 11)
    assert 0 < rates["token"] < 1
    assert rates == pytest.approx(
        {
            "token": wrong.sum().item() / scored.sum().item(),
            "sequence": wrong.any(1).float().mean().item(),
            "last": wrong[:, -1].float().mean().item(),
            "sequences": 100,
            "tokens": scored.sum().item(),
        }
    )


def asked(model: Recalls) -> Tensor:
    return torch.cat(model.asked)


def test_neither_batch_nor_memory_decides_what_is_asked(
    flip_flop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [Recalls() for _ in range(3)]
    rates = [evaluate(models[0], flip_flop["in"], sequences=100)]
    rates.append(evaluate(models[1], flip_flop["in"], sequences=100, batch=7))
    monkeypatch.setattr(evaluation, "PAIRS", 5 * 31**2)
    rates.append(evaluate(models[2], flip_flop["in"], sequences=100))
    assert rates[0] == rates[1] == rates[2]
    assert [max(len(tokens) for tokens in model.asked) for model in models] == [64, 7, 5]
    assert all(torch.equal(asked(model), asked(models[0])) for model in models)


def test_a_sequence_too_long_for_the_bound_comes_alone(
    flip_flop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "PAIRS", 1)
    model = Recalls()
    evaluate(model, flip_flop["in"], sequences=3)
    assert [len(tokens) for tokens in model.asked] == [1, 1, 1]


def test_seeds_ask_different_questions(flip_flop: Any) -> None:
    models = [Recalls() for _ in range(3)]
    for model, seed in zip(models, (0, 0, 1), strict=True):
        evaluate(model, flip_flop["in"], seed=seed, sequences=10)
    assert torch.equal(asked(models[0]), asked(models[1]))
    assert not torch.equal(asked(models[0]), asked(models[2]))


def test_the_test_set_s_own_number_is_the_default() -> None:
    test_set = tasks.build("counting", max_steps=4).test_sets()["in"]

    class Silent(nn.Module):
        def forward(self, tokens: Tensor) -> Tensor:
            return torch.zeros(*tokens.shape, test_set.task.vocab_size)

    assert evaluate(Silent(), test_set)["sequences"] == 1000


@pytest.mark.parametrize("name", ["sequences", "batch"])
def test_bad_numbers(name: str, flip_flop: Any) -> None:
    with pytest.raises(UsageError, match=f"{name} must be at least 1, got 0"):
        evaluate(Recalls(), flip_flop["in"], **{name: 0})


def tiny(**changes: Any) -> Settings:
    values: dict[str, Any] = {
        "task": "flip-flop",
        "task_settings": {"length": 16},
        "encoding": "rope",
        "model": {"dim": 16, "layers": 1, "heads": 2, "dropout": 0.1},
        "steps": 3,
        "batch": 4,
        "lr": 1e-2,
    }
    return Settings(**{**values, **changes})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "rope"
    train(tiny(), path)
    return path


def test_a_run_is_loaded_ready_for_use(run: Path, tmp_path: Path) -> None:
    outcome = train(tiny(), tmp_path)
    model, settings, task = load_run(run)
    assert settings == tiny()
    assert task == tasks.build("flip-flop", length=16)
    assert not model.training
    tokens = task.batch(0, "test", 0, 4).inputs
    assert torch.equal(model(tokens), outcome.model.eval()(tokens))


def test_all_test_sets_of_a_run(run: Path) -> None:
    results = evaluate_run(run, sequences=10)
    model, _, task = load_run(run)
    assert list(results) == list(task.test_sets())
    for name, test_set in task.test_sets().items():
        assert results[name] == evaluate(model, test_set, sequences=10)


def test_one_test_set_at_another_length(run: Path) -> None:
    results = evaluate_run(run, ["sparse"], task_settings={"length": 40}, sequences=10)
    model, _, task = load_run(run)
    longer = tasks.build("flip-flop", length=40).test_sets()["sparse"]
    assert results == {"sparse": evaluate(model, longer, sequences=10)}
    assert task.max_length == 16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"test_sets": ["sparce"]}, "unknown test set of the flip-flop task 'sparce'.*'sparse'"),
        ({"task_settings": {"lenght": 4}}, "'lenght'"),
        ({"task_settings": {"length": 5}}, "even int"),
        ({"device": "gpu"}, "device 'gpu' cannot be used here"),
        ({"sequences": 0}, "sequences must be at least 1, got 0"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"seed": -1}, "seed must be from 0 to 4294967295, got -1"),
    ],
)
def test_mistakes_are_named(arguments: dict[str, Any], message: str, run: Path) -> None:
    with pytest.raises(UsageError, match=message):
        evaluate_run(run, **{"sequences": 4, **arguments})


def test_the_vocabulary_stays(tmp_path: Path) -> None:
    train(tiny(task="counting", task_settings={"max_steps": 8}), tmp_path)
    with pytest.raises(UsageError, match="leave the vocabulary as it was"):
        evaluate_run(tmp_path, ["in"], task_settings={"variables": 2}, sequences=4)


@pytest.fixture
def learned(tmp_path: Path) -> Path:
    """A run whose positions are a table of the training length."""
    train(tiny(encoding="absolute"), tmp_path / "absolute")
    return tmp_path / "absolute"


def test_sequences_past_the_end_of_a_learned_table(learned: Path) -> None:
    results = evaluate_run(learned, sequences=4)
    refused = {name for name, rates in results.items() if "refused" in rates}
    assert refused == {"length x2", "length x2 sparse", "length x4"}
    assert "max_length" in results["length x2"]["refused"]
    with pytest.raises(UsageError, match="max_length"):
        evaluate_run(learned, ["length x2"], sequences=4)


@pytest.mark.parametrize("load", [load_run, evaluate_run])
def test_a_directory_that_is_no_run(load: Callable[[Path], Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no checkpoint at .*the folder is empty: give that"):
        load(tmp_path)
    assert list(tmp_path.iterdir()) == []


TEXT = Path(__file__).parent / "tasks" / "corpus"


@pytest.fixture(scope="module")
def text_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "text"
    settings = {"corpus": str(TEXT), "length": 9}
    model = {"dim": 16, "layers": 1, "heads": 2, "max_length": 20}
    train(tiny(task="text", task_settings=settings, encoding="absolute", model=model), path)
    return path


def test_a_text_run_is_measured_at_the_trained_length_and_past_it(text_run: Path) -> None:
    found = evaluation.evaluate_text_run(text_run)
    assert list(found) == ["8", "17", "35"]
    assert found["8"]["tokens"] == found["17"]["tokens"] == 150 // 35 * 35
    assert "absolute positions were built for 20 tokens" in found["35"]["refused"]
    few = evaluation.evaluate_text_run(text_run, windows=[4], sequences=2)
    assert few["4"]["tokens"] == few["4"]["bytes"] == 16
    whole = evaluation.evaluate_text_run(text_run, windows=[5], stride=2)
    assert whole["5"]["tokens"] == 150
    other = evaluation.evaluate_text_run(
        text_run, windows=[5], task_settings={"corpus": "python-prose"}, sequences=4
    )
    assert other["5"]["nats"] != few["4"]["nats"]


def test_of_learned_tokens_bytes_and_words_are_counted() -> None:
    pytest.importorskip("tokenizers")
    task: Any = tasks.build("text", corpus=str(TEXT), length=9, tokens=270)

    class Uniform(nn.Module):
        def forward(self, tokens: Tensor) -> Tensor:
            return torch.zeros(*tokens.shape, 270)

    (found,) = evaluation.evaluate_text(Uniform().eval(), task, windows=[1]).values()
    tokens = task.text("test")
    said = task.bytes_of(tokens[1:])
    assert said == (TEXT / "test.txt").read_bytes()[len(task.bytes_of(tokens[:1])) :]
    assert (found["bytes"], found["words"]) == (len(said), len(said.split()))
    assert found["perplexity"] == pytest.approx(270, rel=1e-5)
    bits = (len(tokens) - 1) * torch.tensor(270.0).log2().item()
    assert found["bits_per_byte"] == pytest.approx(bits / len(said), rel=1e-5)
    assert found["word_perplexity"] == pytest.approx(2 ** (bits / len(said.split())), rel=1e-4)
