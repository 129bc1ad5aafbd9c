import re
from collections import deque
from types import SimpleNamespace

import pytest

from milepost.report import live
from milepost.report.live import CountLine, StudyLines, TrainingLine, duration


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0:00"),
        (59.7, "1:00"),
        (245, "4:05"),
        (3750, "1:02:30"),
        (None, "?"),
        (float("nan"), "?"),
    ],
)
def test_durations(seconds, shown):
    assert duration(seconds) == shown


def study_progress(**changes):
    state = {
        "done": 3,
        "total": 18,
        "failed": [],
        "share": 0.2,
        "seconds_left": 245.0,
        "running": [],
        "queued": deque(),
    }
    return SimpleNamespace(**{**state, **changes})


def test_a_log_has_a_line_for_each_piece_of_news_and_none_in_between(capsys):
    with StudyLines("a study") as lines:
        lines(study_progress(), None)
        lines(study_progress(), "flip-flop, rope, seed 0: finished in 12 s")
        lines(study_progress(failed=[0]), None)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(
        r"\[0:00\] flip-flop, rope, seed 0: finished in 12 s \(3 of 18 cells, 4:05 left\)\n",
        printed.err,
    )


def test_a_log_hears_now_and_then_while_nothing_happens(capsys, monkeypatch):
    monkeypatch.setattr(live, "LOG_SECONDS", 0.0)
    with StudyLines("a study") as lines:
        lines(study_progress(failed=[0]), None)
    assert capsys.readouterr().err == "[0:00] 3 of 18 cells, 1 failed, 4:05 left\n"


def test_a_training_log_ends_with_the_last_step(capsys):
    with TrainingLine() as line:
        for step in (1, 2):
            line(
                SimpleNamespace(
                    step=step,
                    steps=2,
                    loss=0.5,
                    tokens_per_second=1234.5,
                    seconds_left=2.0 - step,
                    skipped=0,
                )
            )
    assert capsys.readouterr().err == (
        "[0:00] step 2 of 2, loss 0.5000, 1,234 tokens/s, 0:00 left\n"
    )


def test_a_count_is_logged_now_and_then_with_the_time_left(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(live.time, "monotonic", lambda: now)
    with CountLine("drawing", "layer") as line:
        for done in range(1, 6):
            now = 20.0 * done
            line(done, 5)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == ("[0:40] 2 of 5 layers, 1:00 left\n[1:20] 4 of 5 layers, 0:20 left\n")


def test_a_count_that_is_soon_over_logs_nothing(capsys):
    with CountLine("asking", "answer") as line:
        line(1, 2)
        line(2, 2)
    assert capsys.readouterr() == ("", "")


def test_a_count_on_a_terminal_is_a_live_line(monkeypatch):
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    with CountLine("asking", "answer") as line:
        line(1, 1)
        (task,) = line.display.tasks
        assert task.description == "asking"
        assert (task.completed, task.total) == (1, 1)
        assert task.fields["about"] == "1 of 1 answer, 0:00 left"
