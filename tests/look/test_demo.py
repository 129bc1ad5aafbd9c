"""The demo's models: trained once, gone on with where that was stopped."""

import signal
from pathlib import Path

import pytest

from milepost.errors import UsageError
from milepost.look import demo
from milepost.training import checkpoint, rundir
from milepost.training.session import Progress
from milepost.training.settings import Settings


def settings(steps: int = 3, **changes: object) -> Settings:
    values = {
        "task": "flip-flop",
        "task_settings": {"length": 8},
        "encoding": "cope",
        "model": {"dim": 16, "layers": 1, "heads": 2},
        "steps": steps,
        "batch": 2,
        "lr": 0.01,
    }
    return Settings(**{**values, **changes})


def step_of(folder: Path) -> int:
    return checkpoint.load(folder / rundir.CHECKPOINT)["counters"]["step"]


def test_the_demo_is_cope_on_flip_flop_and_on_text() -> None:
    found = demo.runs()
    assert [given.task for given in found.values()] == ["flip-flop", "text"]
    assert {given.encoding for given in found.values()} == {"cope"}
    assert {folder.parent for folder in found} == {demo.FOLDER}
    flip_flop = next(iter(found.values()))
    # too few positions to find the last w by counting tokens
    assert flip_flop.encoding_options["p_max"] < 5


def test_what_is_trained_to_its_end_is_not_missing(tmp_path: Path) -> None:
    found = {tmp_path / "a": settings(), tmp_path / "b": settings(seed=1)}
    assert [*demo.missing(found)] == [*found]
    told: list[Progress] = []
    assert demo.make(tmp_path / "b", settings(seed=1), told.append)
    assert [each.step for each in told] == [1, 2, 3]
    assert [*demo.missing(found)] == [tmp_path / "a"]


def test_what_was_stopped_goes_on_from_there(tmp_path: Path) -> None:
    given, told = settings(4), list[Progress]()

    def stop_in_step_2(progress: Progress) -> None:
        if progress.step == 2:
            signal.raise_signal(signal.SIGINT)

    assert not demo.make(tmp_path / "run", given, stop_in_step_2)
    assert step_of(tmp_path / "run") == 2
    assert [*demo.missing({tmp_path / "run": given})] == [tmp_path / "run"]
    assert demo.make(tmp_path / "run", given, told.append)
    assert [each.step for each in told] == [3, 4]
    assert [*demo.missing({tmp_path / "run": given})] == []


def test_a_run_of_other_settings_is_not_gone_on_with(tmp_path: Path) -> None:
    demo.make(tmp_path / "run", settings(2), lambda _: None)
    with pytest.raises(UsageError, match="lr"):
        demo.make(tmp_path / "run", settings(4, lr=0.5), lambda _: None)
    assert step_of(tmp_path / "run") == 2


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot write"):
        demo.make(tmp_path / "file/run", settings(), lambda _: None)
