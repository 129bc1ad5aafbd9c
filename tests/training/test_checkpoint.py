"""Checkpoints: whole, verified, and refused when they are not this run's."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from milepost import tasks
from milepost.errors import UsageError
from milepost.training import checkpoint
from milepost.training.checkpoint import Counters
from milepost.training.loop import build_model
from milepost.training.settings import Settings
from milepost.training.step import Stepper

Make = Callable[..., Settings]
CPU = torch.device("cpu")


def make_stepper(settings: Settings) -> Stepper:
    task = tasks.build(settings.task, **settings.task_settings)
    return Stepper(settings, task, build_model(settings, task), CPU)


def save(path: Path, settings: Settings, stepper: Stepper, counters: Counters) -> None:
    checkpoint.save(path, settings, stepper.model, stepper.optimizer, counters, CPU)


def resume(path: Path, settings: Settings, stepper: Stepper) -> Counters:
    return checkpoint.resume(path, settings, stepper.model, stepper.optimizer, CPU)


@pytest.fixture
def saved(tmp_path: Path, make_settings: Make) -> Path:
    path = tmp_path / "checkpoint.pt"
    stepper = make_stepper(make_settings())
    stepper.take(0)
    save(path, make_settings(), stepper, Counters(step=1, tokens=60, loss=0.7))
    return path


def test_everything_comes_back(tmp_path: Path, make_settings: Make) -> None:
    settings, path = make_settings(), tmp_path / "checkpoint.pt"
    stepper = make_stepper(settings)
    stepper.take(0)
    counters = Counters(1, 60, 0.5, 0.7, 3, 2)
    with torch.random.fork_rng():
        save(path, settings, stepper, counters)
        drawn = torch.rand(4)
        other = make_stepper(settings)
        assert resume(path, settings, other) == counters
        assert torch.equal(torch.rand(4), drawn)
    for name, value in stepper.model.state_dict().items():
        assert torch.equal(other.model.state_dict()[name], value), name
    ours, theirs = stepper.optimizer.state_dict(), other.optimizer.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    for index, state in ours["state"].items():
        for name, value in state.items():
            assert torch.equal(theirs["state"][index][name], value), name


def test_other_settings_are_listed(saved: Path, make_settings: Make) -> None:
    other = make_settings(lr=0.5, steps=9)
    with pytest.raises(UsageError, match=r"steps 8 ≠ 9; lr 0\.01 ≠ 0\.5.*another --out"):
        resume(saved, other, make_stepper(other))


def test_a_missing_checkpoint(tmp_path: Path) -> None:
    path, run = tmp_path / "run" / "checkpoint.pt", "give that of a run of `milepost train`"
    for why in ("there is no such folder", "the folder is empty", "the folder holds other files"):
        with pytest.raises(UsageError, match=rf"^no checkpoint at .*, {why}: {run}$"):
            checkpoint.load(path)
        (path.parent / "other").touch() if path.parent.exists() else path.parent.mkdir()


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_truncated_checkpoint(share: float, saved: Path) -> None:
    whole = saved.read_bytes()
    saved.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(UsageError, match=r"checkpoint\.pt is damaged.*into another folder"):
        checkpoint.load(saved)


def test_no_flipped_bit_becomes_a_weight(saved: Path) -> None:
    whole = saved.read_bytes()
    before = torch.load(saved, weights_only=True)
    damaged = 0
    for place in range(0, len(whole), len(whole) // 200):
        flipped = bytearray(whole)
        flipped[place] ^= 0x10
        saved.write_bytes(flipped)
        try:
            after = checkpoint.load(saved)
        except UsageError:
            damaged += 1
            continue
        # padding, and fields of the archive that nobody reads
        for name, value in before["model"].items():
            assert torch.equal(after["model"][name], value), (place, name)
    assert damaged > 100


@pytest.mark.parametrize("content", [{"model": {}}, [1, 2], torch.zeros(2)])
def test_another_kind_of_file(content: object, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "checkpoint.pt")
    with pytest.raises(UsageError, match="not a checkpoint of this version"):
        checkpoint.load(tmp_path / "checkpoint.pt")


def test_a_model_that_another_version_built_otherwise(saved: Path, make_settings: Make) -> None:
    content = checkpoint.load(saved)
    del content["model"]["embedding.weight"]
    settings = make_settings()
    model = build_model(settings, tasks.build(settings.task, **settings.task_settings))
    with pytest.raises(UsageError, match="does not fit the model"):
        checkpoint.load_model(saved, content, model)


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_checkpoint(
    function: str, saved: Path, make_settings: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    settings = make_settings()
    old = saved.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, function, full)
        with pytest.raises(UsageError, match="free some space"):
            save(saved, settings, make_stepper(settings), Counters(step=2))
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]
    assert saved.read_bytes() == old
    assert resume(saved, settings, make_stepper(settings)).step == 1
