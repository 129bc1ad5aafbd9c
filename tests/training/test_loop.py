"""Whole runs: the same bits however often they are stopped, and an end to those that diverge."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from milepost.errors import UsageError
from milepost.tasks.flip_flop import FlipFlop
from milepost.tasks.task import Batch
from milepost.training import checkpoint
from milepost.training.loop import train
from milepost.training.rundir import read_metrics, read_settings
from milepost.training.session import PATIENCE, DivergenceError, Progress
from milepost.training.settings import Settings
from milepost.training.step import Stepper

Make = Callable[..., Settings]


def content(run: Path) -> dict[str, Any]:
    """The checkpoint without what no two runs share."""
    values = checkpoint.load(run / "checkpoint.pt")
    del values["counters"]["seconds"]
    return values


def metrics(run: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k != "seconds"} for line in read_metrics(run)]


def assert_same(ours: Any, theirs: Any, path: str = "") -> None:
    """The same structure, with the same bits in every tensor."""
    assert type(ours) is type(theirs), path
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys(), path
        for key, value in ours.items():
            assert_same(value, theirs[key], f"{path}.{key}")
    elif isinstance(ours, torch.Tensor):
        assert torch.equal(ours, theirs), path
    else:
        assert ours == theirs, path


def assert_same_run(ours: Path, theirs: Path) -> None:
    assert_same(content(ours), content(theirs))
    assert metrics(ours) == metrics(theirs)


@pytest.mark.parametrize(
    "changes",
    [
        {"accumulate": 2, "evaluate_every": 3},
        {"optimizer": "adam", "schedule": "cosine", "warmup": 3, "train_sequences": 10},
        {"precision": "bf16", "clip": None},
        {"encoding": "randomized", "evaluate_every": 2},
        {"encoding": "cope"},
    ],
)
def test_stopped_and_resumed_is_never_stopped(
    changes: dict[str, Any], tmp_path: Path, make_settings: Make, stop_after: Any
) -> None:
    settings = make_settings(**changes)
    train(settings, tmp_path / "whole")
    seconds = []
    for steps in (3, 2, 99):
        stopper = stop_after(steps)
        torch.rand(7)  # what else the process does has no part in it
        outcome = train(
            settings,
            tmp_path / "parts",
            resume=steps != 3,
            progress=stopper.progress,
            stop=stopper.stop,
        )
        seconds.append(outcome.seconds)
        assert outcome.stopped is (steps != 99)
    assert [progress.step for progress in stopper.seen] == [6, 7, 8]
    assert seconds == sorted(seconds)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


def test_what_was_done_after_the_checkpoint_is_done_again(
    tmp_path: Path, make_settings: Make, stop_after: Any
) -> None:
    settings = make_settings()
    train(settings, tmp_path / "whole")
    stopper = stop_after(4)
    train(settings, tmp_path / "killed", progress=stopper.progress, stop=stopper.stop)

    def power_cut(progress: Progress) -> None:
        if progress.step == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(settings, tmp_path / "killed", resume=True, progress=power_cut)
    with open(tmp_path / "killed" / "metrics.jsonl", "a") as file:
        file.write('{"step": 8, "lo')
    assert len(metrics(tmp_path / "killed")) == 7
    assert content(tmp_path / "killed")["counters"]["step"] == 4
    train(settings, tmp_path / "killed", resume=True)
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


def test_a_run_depends_on_its_settings_alone(tmp_path: Path, make_settings: Make) -> None:
    runs = [tmp_path / name for name in ("one", "other", "seed")]
    for run, seed, calls in zip(runs, (0, 0, 1), (0, 5, 0), strict=True):
        torch.rand(calls)
        before = torch.get_rng_state()
        train(make_settings(seed=seed), run)
        assert torch.equal(torch.get_rng_state(), before)
    assert_same_run(runs[0], runs[1])
    assert metrics(runs[0])[0] != metrics(runs[2])[0]


def test_evaluation_does_not_disturb_the_training(tmp_path: Path, make_settings: Make) -> None:
    train(make_settings(), tmp_path / "without")
    train(make_settings(evaluate_every=3, evaluate_sequences=70), tmp_path / "with")
    ours, theirs = content(tmp_path / "with"), content(tmp_path / "without")
    for name in ("model", "optimizer", "generators"):
        assert_same(ours[name], theirs[name], name)
    errors = {
        line["step"]: line["errors"] for line in metrics(tmp_path / "with") if "errors" in line
    }
    assert sorted(errors) == [3, 6, 8]
    assert all(value["sequences"] == 70 for value in errors.values())
    assert not any("errors" in line for line in metrics(tmp_path / "without"))


def test_other_test_sets_are_measured_beside(tmp_path: Path, make_settings: Make) -> None:
    train(
        make_settings(evaluate_every=8, evaluate_sequences=70, evaluate_on=["sparse"]),
        tmp_path / "run",
    )
    (line,) = [line for line in metrics(tmp_path / "run") if "errors" in line]
    assert line["on"]["sparse"]["sequences"] == 70
    # mostly ignored bits: fewer reads among as many tokens
    assert line["on"]["sparse"]["tokens"] < line["errors"]["tokens"]
    with pytest.raises(UsageError, match="unknown test set of the flip-flop task 'sprase'"):
        train(make_settings(evaluate_on=["sprase"]), tmp_path / "other")


def test_a_finished_run_is_left_as_it_is(tmp_path: Path, make_settings: Make) -> None:
    train(make_settings(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != ".lock"}
    outcome = train(make_settings(), tmp_path, resume=True)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != ".lock"}
    assert after == before
    assert (outcome.step, outcome.stopped) == (8, False)
    assert outcome.loss == metrics(tmp_path)[-1]["loss"]


def test_a_run_learns(tmp_path: Path, make_settings: Make) -> None:
    # every bit is read back at once: the answer is the token before the last
    settings = make_settings(
        task_settings={"length": 8, "ignore": 0.0},
        model={"dim": 32, "layers": 1, "heads": 2},
        steps=80,
        batch=32,
        evaluate_every=80,
    )
    train(settings, tmp_path)
    lines = metrics(tmp_path)
    assert lines[0]["loss"] > 0.6
    assert lines[-1]["loss"] < 0.3
    assert lines[-1]["errors"]["token"] < 0.1


def test_the_metrics_and_the_progress_of_each_step(
    tmp_path: Path, make_settings: Make, stop_after: Any
) -> None:
    stopper = stop_after(99)
    settings = make_settings(accumulate=2, warmup=2, schedule="constant")
    outcome = train(settings, tmp_path, progress=stopper.progress)
    lines = read_metrics(tmp_path)
    assert [line["step"] for line in lines] == list(range(1, 9))
    assert [line["tokens"] for line in lines] == [2 * 4 * 15 * step for step in range(1, 9)]
    assert [line["lr"] for line in lines] == [0.005] + [0.01] * 7
    assert [progress.loss for progress in stopper.seen] == [line["loss"] for line in lines]
    assert all(progress.tokens_per_second > 0 for progress in stopper.seen)
    left = [progress.seconds_left for progress in stopper.seen]
    assert left[0] > 0
    assert left[-1] == 0
    assert {progress.steps for progress in stopper.seen} == {8}
    assert outcome.seconds > 0
    assert read_settings(tmp_path) == settings


def test_checkpoints_are_written_on_the_way(tmp_path: Path, make_settings: Make) -> None:
    steps = []

    def look(progress: Progress) -> None:
        steps.append(content(tmp_path)["counters"]["step"])

    train(make_settings(), tmp_path, checkpoint_every=0, progress=look)
    assert steps == list(range(8))


def test_a_mistake_leaves_nothing_behind(tmp_path: Path, make_settings: Make) -> None:
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"task": "flip-flp"}, "unknown task 'flip-flp'.*flip-flop"),
        ({"task_settings": {"lenght": 16}}, "'lenght'"),
        ({"encoding": "rop"}, "unknown encoding 'rop'.*rope"),
        ({"model": {"dims": 16}}, "unknown model setting 'dims'"),
        (
            {
                "encoding": "absolute",
                "model": {"dim": 16, "layers": 1, "heads": 2, "max_length": 14},
            },
            "max_length",
        ),
    ]
    for changes, message in mistakes:
        with pytest.raises(UsageError, match=message):
            train(make_settings(**changes), tmp_path / "run")
    with pytest.raises(UsageError, match=r"no checkpoint at .*: leave --resume out"):
        train(make_settings(), tmp_path / "run", resume=True)
    with pytest.raises(UsageError, match="device 'gpu' cannot be used here"):
        train(make_settings(), tmp_path / "run", device="gpu")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_run_is_not_overwritten(tmp_path: Path, make_settings: Make) -> None:
    train(make_settings(), tmp_path)
    before = content(tmp_path)
    with pytest.raises(UsageError, match=r"already holds checkpoint\.pt: pass --resume"):
        train(make_settings(seed=1), tmp_path)
    with pytest.raises(UsageError, match="seed 0 ≠ 1"):
        train(make_settings(seed=1), tmp_path, resume=True)
    assert_same(content(tmp_path), before)
    assert read_settings(tmp_path).seed == 0


def test_a_disk_that_fills_up_costs_no_more_than_the_steps_since(
    tmp_path: Path, make_settings: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    train(make_settings(), tmp_path / "whole")
    run = tmp_path / "run"

    def fill_up(progress: Progress) -> None:
        if progress.step == 5:
            monkeypatch.setattr(os, "replace", full)

    with pytest.raises(UsageError, match=r"checkpoint\.pt: No space left.*free some space"):
        train(make_settings(), run, checkpoint_every=0, progress=fill_up)
    monkeypatch.undo()
    assert content(run)["counters"]["step"] == 4
    assert sorted(path.name for path in run.iterdir()) == [
        ".lock",
        "checkpoint.pt",
        "config.json",
        "metrics.jsonl",
    ]
    train(make_settings(), run, resume=True)
    assert_same_run(run, tmp_path / "whole")


@pytest.fixture
def break_steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[range], None]:
    """Make the losses of some steps infinite."""
    honest = Stepper.take

    def break_them(steps: range) -> None:
        def take(self: Stepper, step: int) -> Any:
            factor = torch.inf if step in steps else 1

            def call(tokens: torch.Tensor) -> torch.Tensor:
                logits: torch.Tensor = self.model(tokens)
                return logits * factor

            self.call = call
            return honest(self, step)

        monkeypatch.setattr(Stepper, "take", take)

    return break_them


def test_a_few_bad_steps_are_skipped_and_counted(
    tmp_path: Path,
    make_settings: Make,
    break_steps: Callable[[range], None],
    stop_after: Any,
) -> None:
    settings = make_settings(steps=24)
    break_steps(range(3, 3 + PATIENCE - 1))
    stopper = stop_after(99)
    outcome = train(settings, tmp_path / "whole", progress=stopper.progress)
    assert (outcome.skipped, outcome.stopped) == (PATIENCE - 1, False)
    lines = metrics(tmp_path / "whole")
    bad = [line["step"] for line in lines if line["loss"] is None]
    assert bad == list(range(4, 3 + PATIENCE))
    assert [line["skipped"] for line in lines[:6]] == [0, 0, 0, 1, 2, 3]
    assert lines[-1]["skipped"] == stopper.seen[-1].skipped == PATIENCE - 1
    assert not (tmp_path / "whole" / "nonfinite_batch.pt").exists()

    # the count goes on across a stop
    parts = stop_after(6)
    train(settings, tmp_path / "parts", progress=parts.progress, stop=parts.stop)
    assert content(tmp_path / "parts")["counters"]["skipped_in_a_row"] == 3
    train(settings, tmp_path / "parts", resume=True)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


def test_bad_steps_apart_do_not_add_up(
    tmp_path: Path, make_settings: Make, break_steps: Callable[[range], None]
) -> None:
    break_steps(range(0, 40, 2))
    outcome = train(make_settings(steps=40), tmp_path)
    assert (outcome.step, outcome.skipped) == (40, 20)


def test_ten_bad_steps_in_a_row_end_the_run(
    tmp_path: Path,
    make_settings: Make,
    break_steps: Callable[[range], None],
    stop_after: Any,
) -> None:
    settings = make_settings(steps=30, accumulate=2)
    stopper = stop_after(2)
    train(settings, tmp_path, progress=stopper.progress, stop=stopper.stop)
    before = content(tmp_path)
    break_steps(range(3, 30))
    remedy = r"10 steps in a row, up to step 13: .*nonfinite_batch\.pt.*lower lr.*clip.*fp32"
    with pytest.raises(DivergenceError, match=remedy):
        train(settings, tmp_path, resume=True)
    assert_same(content(tmp_path), before)
    assert len(metrics(tmp_path)) == 13
    saved = torch.load(tmp_path / "nonfinite_batch.pt", weights_only=True)
    task = FlipFlop(length=16)
    for k in range(2):
        batch = task.batch(0, "train", 12 * 2 + k, 4)
        assert torch.equal(saved["tokens"][k], batch.tokens)
        assert torch.equal(saved["scored"][k], batch.scored)
    assert saved["step"] == 13


def test_a_learning_rate_far_too_high(tmp_path: Path, make_settings: Make) -> None:
    settings = make_settings(lr=1e30, schedule="constant", steps=100, clip=None)
    with pytest.raises(DivergenceError, match=r"it was 1e\+30"):
        train(settings, tmp_path)


CHILD = """
import json, signal, sys
from pathlib import Path
import torch
from milepost.training.loop import train
from milepost.training.settings import Settings

# as in a terminal, whatever this process inherited
signal.signal(signal.SIGINT, signal.default_int_handler)
torch.set_num_threads(1)

def progress(progress):
    print(progress.step, flush=True)
    if progress.step == 3:
        sys.stdin.readline()  # the parent answers when it has sent its signal

settings = Settings.from_dict(json.loads(sys.argv[1]))
outcome = train(settings, Path(sys.argv[2]), progress=progress)
print("stopped" if outcome.stopped else "finished")
"""


def test_ctrl_c_writes_a_checkpoint_and_ends(tmp_path: Path, make_settings: Make) -> None:
    settings = make_settings(accumulate=2)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, json.dumps(settings.to_dict()), str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert [child.stdout.readline() for _ in range(3)] == ["1\n", "2\n", "3\n"]
        child.send_signal(signal.SIGINT)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.read() == "stopped\n"
    assert child.returncode == 0
    assert content(tmp_path / "run")["counters"]["step"] == 3
    train(settings, tmp_path / "run", resume=True)
    train(settings, tmp_path / "whole")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_batch_with_nothing_scored_is_a_step_that_is_skipped(
    tmp_path: Path, make_settings: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = FlipFlop.batch

    def batch(self: FlipFlop, seed: int, split: str, step: int, size: int) -> Batch:
        drawn = honest(self, seed, split, step, size)
        return Batch(drawn.tokens, drawn.scored & (step != 2))

    monkeypatch.setattr(FlipFlop, "batch", batch)
    assert train(make_settings(), tmp_path).skipped == 1


def test_the_models_settings_are_listed_without_what_is_not_given_there(
    tmp_path: Path, make_settings: Make
) -> None:
    with pytest.raises(UsageError, match="unknown model setting 'dimm': did you mean 'dim'") as one:
        train(make_settings(model={"dimm": 8}), tmp_path / "run")
    assert "layers" in str(one.value)
    for name in ("vocab_size", "encoding", "encoding_options"):
        assert name not in str(one.value).replace(",", "").split()
    assert list(tmp_path.iterdir()) == []
