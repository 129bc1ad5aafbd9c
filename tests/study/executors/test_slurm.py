"""Jobs by submitit, on a stand-in for Slurm's commands (`cluster.sh`): the jobs are real."""

import json
import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from milepost import studies
from milepost.errors import UsageError
from milepost.study import cell as cells
from milepost.study import work
from milepost.study.cell import Cell
from milepost.study.executors import slurm
from milepost.study.executors.slurm import Slurm
from milepost.study.run import run
from milepost.study.study import Row

pytest.importorskip("submitit")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cluster.sh is for Linux")

STUDY = replace(studies.load("cope-table2"), arms=studies.load("cope-table2").arms[:1])


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Slurm's commands, first on the path; the folder that they share."""
    folder = tmp_path.parent / "cluster"
    folder.mkdir()
    for command in ("sbatch", "srun", "scontrol", "sacct"):
        (folder / command).symlink_to(Path(__file__).with_name("cluster.sh"))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CLUSTER", str(folder))
    monkeypatch.setattr(slurm, "POLL_SECONDS", 0.02)
    import submitit

    submitit.SlurmJob.watcher.clear()  # it remembers a job of that number
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # a job takes the cores that it is given
    yield folder
    os.sched_setaffinity(0, cores)


def run_it(directory, encodings=("rope",), watch=lambda *_: None, **options):
    return run(
        STUDY,
        directory,
        scale="mini",
        encodings=encodings,
        seeds=1,
        executor=Slurm(**options),
        watch=watch,
        keep_runs=True,
    )


def cell(encoding="rope"):
    return Cell.build(STUDY.arms[0], "mini", Row(encoding, encoding), 0)


def result(directory, one):
    return json.loads(work.result_file(one, directory).read_text())


def test_an_array_of_jobs_leaves_what_the_pool_leaves(tiny, tmp_path, cluster):
    tiny["flip-flop/mini"]["options"] = {"p_max": 0}  # which CoPE refuses
    both = ["rope", "cope"]
    options = {"timeout_min": 7, "slurm_partition": "short"}
    left = run_it(tmp_path, both, jobs=1, options=options, detached=True)
    assert [one.cell.encoding for one in left.running] == both
    assert not (tmp_path / "cells").exists()
    script = (cluster / "script").read_text()
    for said in ("--array=0-1%1", "--time=7", "--partition=short", "--job-name=milepost"):
        assert f"#SBATCH {said}\n" in script

    (cluster / "refuses").touch()  # the same command finds them, and submits nothing twice
    news = []
    progress = run_it(tmp_path, both, lambda _, line: line and news.append(line))
    assert (progress.finished, progress.skipped) == (1, 0)
    assert [one.encoding for one in progress.failed] == ["cope"]
    assert any("UsageError: p_max must be" in line for line in news)
    assert list((tmp_path / "slurm").glob("*_log.err"))  # kept, for there was a failure
    assert not list((tmp_path / "slurm").glob("*.json"))
    alone = tmp_path / "alone"
    cells.run(cell(), alone, report=lambda _: None, stop=lambda: False, device="cpu")
    assert result(tmp_path, cell())["errors"] == result(alone, cell())["errors"]


def test_a_job_that_is_told_to_stop_goes_on_from_its_checkpoint(tiny, tmp_path, cluster):
    tiny["flip-flop/mini"]["training"] |= {"steps": 200, "evaluate_every": 0}
    metrics = work.run_folder(cell(), tmp_path) / "metrics.jsonl"
    told, seen = [], []

    def tell_it(progress, news):
        seen.extend(progress.running if not seen else ())
        if not told and metrics.exists() and metrics.stat().st_size:
            told.append(json.loads(seen[0].file.read_text())["process"])
            os.kill(told[0], signal.SIGUSR2)

    progress = run_it(tmp_path, watch=tell_it)
    assert progress.finished == 1
    assert (cluster / "requeued").read_text() == "requeue 100\n"
    assert 0 < seen[0].report.resumed_at < 1
    assert [json.loads(line)["step"] for line in metrics.read_text().splitlines()] == list(
        range(1, 201)
    )
    assert not (tmp_path / "slurm").exists()


@pytest.fixture
def submitted(tiny, tmp_path, cluster, monkeypatch):
    """A job that never begins."""
    (cluster / "sbatch").unlink()
    (cluster / "sbatch").write_text("#!/bin/sh\necho Submitted batch job 100\n")
    (cluster / "sbatch").chmod(0o755)
    run_it(tmp_path, detached=True)
    return cluster


def test_a_job_that_was_cancelled_is_submitted_anew(submitted, tmp_path):
    (submitted / "state").write_text("CANCELLED by 1000")
    executor = Slurm()
    assert executor.begin(tmp_path, [cell()]) == []
    assert not list((tmp_path / "slurm").glob("*.json"))


def test_a_cell_that_failed_while_nobody_waited_is_submitted_anew(submitted, tmp_path):
    (submitted / "state").write_text("COMPLETED")
    assert len(Slurm().begin(tmp_path, [cell()])) == 1
    work.write_failure(cell(), tmp_path, "no room")
    assert Slurm().begin(tmp_path, [cell()]) == []
    assert not list((tmp_path / "slurm").glob("*.json"))


@pytest.mark.parametrize("detached", [False, True])
def test_a_job_that_the_cluster_ended_has_failed(submitted, tmp_path, detached):
    (submitted / "state").write_text("OUT_OF_MEMORY")
    progress = run_it(tmp_path, detached=detached)
    assert progress.failed == [cell()]
    reason = json.loads(work.failure_file(cell(), tmp_path).read_text())["reason"]
    assert reason == "job 100 ended as OUT_OF_MEMORY without a result"


def test_a_job_cancelled_while_it_is_waited_for_has_not_failed(submitted, tmp_path):
    def cancel(progress, news):
        (submitted / "state").write_text("CANCELLED")

    progress = run_it(tmp_path, watch=cancel)
    assert (progress.failed, progress.stopped) == ([], [cell()])
    assert not (tmp_path / "failed").exists()


def test_what_cannot_be_submitted_is_said(tiny, tmp_path, cluster, monkeypatch):
    (cluster / "refuses").touch()
    with pytest.raises(UsageError, match=r"sbatch says: .*invalid partition"):
        run_it(tmp_path)
    with pytest.raises(UsageError, match=r"got what it refuses: .*'partitoin' need"):
        Slurm(options={"partitoin": "short"})
    with pytest.raises(UsageError, match="jobs must be at least 1, got 0"):
        Slurm(jobs=0)
    monkeypatch.setenv("PATH", str(Path(shutil.which("env")).parent / "nothing"))
    with pytest.raises(UsageError, match="run the command where srun and sbatch are"):
        Slurm()
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UsageError, match=r'pip install "milepost\[cluster\]"'):
        Slurm()
