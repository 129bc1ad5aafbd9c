from collections import deque
from types import SimpleNamespace

import pytest

from milepost.study.executors.local import Child
from milepost.study.progress import Progress, makespan
from milepost.study.work import Report


def test_makespan_gives_each_waiting_task_to_whoever_is_free_first():
    # two busy for 3 and 1; then 4 starts at 1, 2 at 3, 1 at 5
    assert makespan([3.0, 1.0], [4.0, 2.0, 1.0], 2) == 6.0
    assert makespan([], [2.0, 2.0, 2.0], 2) == 4.0
    assert makespan([], [], 2) == 0.0


def test_time_left_follows_the_pace_of_what_is_done(monkeypatch):
    monkeypatch.setattr("milepost.study.progress.time.monotonic", lambda: 100.0)
    cell = SimpleNamespace(cost=10.0)
    progress = Progress(total=4, jobs=1, queued=deque([cell, cell]))
    assert progress.seconds_left is None
    report = Report(0.5, "", resumed_at=0.25)
    # half of a cell in 20 s, a quarter of it by an earlier process: 80 s a cell
    progress.running = [Child(cell, 80.0, None, None, None, report=report)]
    assert progress.seconds_left == pytest.approx(40 + 80 + 80)
    progress.paces = [2.0]  # and one cell took 20 s: 50 s a cell
    assert progress.seconds_left == pytest.approx(25 + 50 + 50)
