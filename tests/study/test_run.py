"""Studies on models too small to learn, run for their bookkeeping."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from milepost import studies
from milepost.errors import UsageError
from milepost.report import results
from milepost.study import cell as cells
from milepost.study import process, work
from milepost.study.cell import Cell
from milepost.study.executors import local
from milepost.study.executors.local import Local
from milepost.study.run import run
from milepost.study.study import Row
from milepost.training.rundir import locked

STUDY = studies.load("cope-table2")


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def result_times(directory):
    return {path.name: path.stat().st_mtime_ns for path in (directory / "cells").iterdir()}


def test_failures_stay_alone_and_a_second_run_does_only_what_is_asked_for(tiny, tmp_path):
    tiny["selective-copy/mini"]["options"] = {"p_max": 0}  # which CoPE refuses
    killed = []

    def kill_the_first(progress, news):
        if not killed and progress.running:
            os.kill(progress.running[0].process.pid, signal.SIGKILL)
            killed.append(progress.running[0].cell)

    def run_it(**options):
        return run(
            STUDY,
            tmp_path,
            scale="mini",
            encodings=["rope", "cope"],
            seeds=1,
            executor=Local(jobs=2),
            **options,
        )

    progress = run_it(watch=kill_the_first)
    assert (progress.finished, progress.skipped, len(progress.failed)) == (2, 0, 2)
    reasons = {json.loads(path.read_text())["reason"] for path in (tmp_path / "failed").iterdir()}
    assert any("killed by SIGKILL" in reason for reason in reasons)
    assert any("UsageError: p_max must be" in reason for reason in reasons)
    before = result_times(tmp_path)
    assert len(before) == 2

    news = []
    progress = run_it(watch=lambda _, line: line and news.append(line))
    assert (progress.finished, progress.skipped, len(progress.failed)) == (0, 2, 2)
    assert result_times(tmp_path) == before
    waiting = "failed before, and waits for --retry: "
    assert [waiting in line for line in news] == [True, True]
    assert any(line.startswith(f"{killed[0].label}: {waiting}killed by SIGKILL") for line in news)

    news.clear()
    progress = run_it(retry=True, watch=lambda _, line: line and news.append(line))
    assert (progress.finished, progress.skipped, len(progress.failed)) == (1, 2, 1)
    assert sorted(line.split(",")[0] for line in news) == [killed[0].arm, "selective-copy"]
    after = result_times(tmp_path)
    assert before.items() <= after.items()
    assert len(after) == 3

    found = results.load(tmp_path)
    assert (found.rows, found.seeds, found.strays) == (("rope", "cope"), 1, 0)
    assert [cell.failure is not None for cell in found.of("selective-copy", "cope")] == [True]
    (rope,) = found.of("flip-flop", "rope")
    assert rope.result is not None
    assert [point["step"] for point in rope.result["history"]] == [2, 3]
    assert rope.result["errors"]["sparse"]["sequences"] == 4
    assert rope.result["test_sets"]["length x4"]["length"] == 32
    failed = tmp_path / "failed" / f"{progress.failed[0].hash}.json"
    assert list((tmp_path / "failed").iterdir()) == [failed]
    kept = {path.stem for path in (tmp_path / "runs").iterdir()}
    assert kept == {progress.failed[0].hash}


def test_ctrl_c_stops_the_processes_at_a_checkpoint(tiny, tmp_path):
    tiny["flip-flop/mini"]["training"]["steps"] = 10**6
    study = replace(STUDY, arms=STUDY.arms[:1])
    seen = []

    def interrupt(progress, news):
        if progress.running and progress.running[0].report.share > 0:
            seen.extend(progress.running)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(study, tmp_path, scale="mini", encodings=["rope"], seeds=1, watch=interrupt)
    (stopped,) = seen
    assert (tmp_path / "runs" / stopped.cell.hash / "checkpoint.pt").exists()
    assert not (tmp_path / "failed").exists()
    assert not (tmp_path / "cells").exists()
    assert stopped.process.exitcode == 0


def test_ctrl_c_does_not_reach_the_first_cell(tmp_path):
    """The tracker that the first start of a process begins is what let it through."""
    script = f"""
import multiprocessing, pathlib, signal
from milepost.study.executors import local

if __name__ == "__main__":
    seen = []
    def start(self):
        from multiprocessing import forkserver, resource_tracker
        resource_tracker.getfd()  # as the start of a process does
        forkserver.ensure_running()
        seen.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
    multiprocessing.get_context("forkserver").Process.start = start
    path = pathlib.Path({str(tmp_path)!r}) / "x"
    local.work.log_file = lambda *_: path
    local.start(None, path, 1, None)
    print(seen)
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "[True]\n"


def test_a_cell_ignores_ctrl_c_first_of_all(tiny, tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    handlers = []

    def note(*_, **__):
        handlers.append(signal.getsignal(signal.SIGINT))

    monkeypatch.setattr(process, "_print_to", note)
    monkeypatch.setattr(cells, "run", note)
    try:
        process.live(one_cell(), tmp_path, torch.get_num_threads(), None, None)
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
    assert handlers == [signal.SIG_IGN] * 2


def test_a_failure_names_paths_as_the_folder_was_given(tiny, tmp_path, monkeypatch):
    folder = Path(tmp_path.name)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    def fail(cell, directory, **_):
        raise UsageError(f"{directory / 'runs'} is damaged")

    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setattr(process, "_print_to", lambda _: None)
    monkeypatch.setattr(cells, "run", fail)
    try:
        with pytest.raises(SystemExit):
            process.live(one_cell(), folder, torch.get_num_threads(), None, None)
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
    reason = json.loads(work.failure_file(one_cell(), folder).read_text())["reason"]
    assert reason.splitlines()[-1] == f"UsageError: {folder}/runs is damaged"


def one_cell():
    return Cell.build(STUDY.arm("flip-flop"), "mini", Row("rope", "rope"), 0)


class Nowhere(Local):
    """An executor that runs nothing; `asked` is what it would have run."""

    detached = True

    def __init__(self):
        super().__init__(jobs=1)
        self.asked = []

    def begin(self, directory, cells):
        self.asked = list(cells)
        return []

    def start(self, cells):
        return []


def run_alone(cell, directory, **options):
    cells.run(cell, directory, report=lambda _: None, stop=lambda: False, **options)
    return json.loads(work.result_file(cell, directory).read_text())


def test_a_damaged_checkpoint_is_given_up(tiny, tmp_path, capsys):
    cell = one_cell()
    whole = run_alone(cell, tmp_path)
    (work.run_folder(cell, tmp_path) / "checkpoint.pt").write_bytes(b"half of a")
    work.result_file(cell, tmp_path).unlink()
    again = run_alone(cell, tmp_path)
    assert again["errors"] == whole["errors"]
    assert again["history"] == whole["history"]
    printed = capsys.readouterr().out
    assert printed.startswith("starting over: ")
    assert "checkpoint.pt is damaged" in printed


def test_the_device_reaches_the_cell(tiny, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="device 'meta' cannot be used here"):
        run_alone(one_cell(), tmp_path, device="meta")
    assert run_alone(one_cell(), tmp_path, device="cpu")["machine"]["device"] == "cpu"
    with pytest.raises(UsageError, match="device 'meta' cannot be used here"):
        Local(device="meta")
    passed = []

    def start(cell, directory, threads, device):
        passed.append(device)
        raise KeyboardInterrupt

    monkeypatch.setattr(local, "start", start)
    with pytest.raises(KeyboardInterrupt):
        run(STUDY, tmp_path, scale="mini", executor=Local(device="cpu"))
    assert passed == ["cpu"]


@pytest.mark.parametrize("text", ["{}", "[]", "{"])
def test_a_damaged_declaration_is_named(text, tiny, tmp_path):
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(UsageError, match=r"study\.json is damaged"):
        run(STUDY, tmp_path, scale="mini")


def test_a_damaged_result_runs_again(tiny, tmp_path):
    study = replace(STUDY, arms=STUDY.arms[:1])
    nowhere, news = Nowhere(), []
    cell = one_cell()
    work.result_file(cell, tmp_path).parent.mkdir()
    work.result_file(cell, tmp_path).write_text("{}")

    def watch(progress, line):
        news.extend([line] if line else [])

    rope = {"scale": "mini", "encodings": ["rope"], "seeds": 1}
    run(study, tmp_path, **rope, executor=nowhere, watch=watch)
    assert nowhere.asked == [cell]
    (line,) = news
    assert f"{cell.hash}.json is damaged" in line


def test_results_of_an_earlier_recipe_become_strays(tiny, tmp_path):
    nowhere = Nowhere()
    run(STUDY, tmp_path, scale="mini", encodings=["rope", "alibi"], seeds=1, executor=nowhere)
    old = one_cell().hash
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / f"{old}.json").write_text("{}")
    tiny["flip-flop/mini"]["training"]["steps"] = 4
    run(STUDY, tmp_path, scale="mini", encodings=["cope"], seeds=1, executor=nowhere)
    declared = json.loads((tmp_path / "study.json").read_text())
    grid = {(cell["arm"], cell["encoding"]) for cell in declared["cells"]}
    assert grid == {
        ("flip-flop", "cope"),
        *(("selective-copy", name) for name in ("cope", "rope", "alibi")),
    }
    assert results.load(tmp_path).strays == 1


def test_two_runs_of_one_folder_are_refused(tiny, tmp_path):
    with locked(tmp_path), pytest.raises(UsageError, match="in use by process"):
        run(STUDY, tmp_path, scale="mini")


def test_a_text_too_small_for_its_tokens_ends_a_study_before_it_begins(tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "one.txt").write_text("a few words\n" * 99)
    study = studies.load("cope-table5").with_settings({"corpus": str(tmp_path / "text")})
    nowhere = Nowhere()
    with pytest.raises(UsageError, match="give more text, as corpus=PATH or corpus=hf:NAME"):
        run(study, tmp_path, scale="paper", encodings=["rope"], seeds=1, executor=nowhere)
    assert nowhere.asked == []
    assert not (tmp_path / "study.json").exists()


def test_another_study_in_the_folder_is_refused(tiny, tmp_path):
    declared = {"study": "cope-table3", "scale": "mini", "encodings": [], "seeds": 1, "cells": []}
    (tmp_path / "study.json").write_text(json.dumps(declared))
    with pytest.raises(UsageError, match="holds cope-table3 at mini scale, not cope-table2"):
        run(STUDY, tmp_path, scale="mini")


def test_a_run_with_other_rows_widens_the_declared_grid(tiny, tmp_path):
    nowhere = Nowhere()
    run(STUDY, tmp_path, scale="mini", encodings=["alibi", "cope"], seeds=1, executor=nowhere)
    run(STUDY, tmp_path, scale="mini", encodings=["rope"], seeds=2, executor=nowhere)
    declared = json.loads((tmp_path / "study.json").read_text())
    assert declared["encodings"] == ["rope", "cope", "alibi"]
    assert declared["seeds"] == 2
    cells = {(cell["arm"], cell["encoding"], cell["seed"]) for cell in declared["cells"]}
    assert cells == {
        (arm, *rest)
        for arm in ("flip-flop", "selective-copy")
        for rest in (("alibi", 0), ("cope", 0), ("rope", 0), ("rope", 1))
    }


def test_counts_below_one_are_refused(tmp_path):
    with pytest.raises(UsageError, match="jobs must be at least 1, got 0"):
        Local(jobs=0)
    with pytest.raises(UsageError, match="seeds must be at least 1, got 0"):
        run(STUDY, tmp_path, scale="mini", seeds=0)
    assert not list(tmp_path.iterdir())


def test_cells_run_seed_by_seed_and_the_longest_first(tiny, tmp_path):
    nowhere = Nowhere()
    tiny["flip-flop/mini"]["training"]["steps"] = 1000
    run(STUDY, tmp_path, scale="mini", encodings=["rope"], seeds=2, executor=nowhere)
    assert [(cell.settings.seed, cell.arm) for cell in nowhere.asked] == [
        (0, "flip-flop"),
        (0, "selective-copy"),
        (1, "flip-flop"),
        (1, "selective-copy"),
    ]
