"""The command plans, measures, resumes what was lost, and says what to do without a GPU."""

from pathlib import Path
from typing import Any

import pytest
import torch

from milepost.bench import write
from milepost.bench.gpu import command, plan, run, worker
from milepost.bench.gpu.__main__ import run as main
from milepost.bench.gpu.device import Cpu, LostError


def test_a_dry_run_says_what_and_how_long(capsys):
    assert main(["--dry-run", "--lengths", "16,32,48", "--head-dims", "16"]) == 0
    printed = capsys.readouterr().out
    assert all(part in printed for part in plan.PARTS)
    assert "that it may take" in printed
    assert main(["--dry-run", "--tune", "--seconds", "100"]) == 0
    assert "does not fit" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_remedy(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in ([], ["--tune"]):
        assert main(["--lengths", "16", *words]) == 2
        assert "found none" in (printed := capsys.readouterr().err)
        assert "--dry-run" in printed
    assert list(tmp_path.iterdir()) == []


WORDS = ["--ops", "softmax", "--lengths", "16", "--head-dims", "16", "--parts", "table,checks"]
WORDS += ["--rounds", "1", "--dtype", "float32"]


@pytest.fixture
def measuring(kernels, tmp_path, monkeypatch):
    """The command measures in this process and folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("milepost.bench.gpu.device.gpu", Cpu)
    monkeypatch.setattr(worker, "in_processes", worker.here(Cpu()))
    return kernels


def test_the_command_measures_and_resumes(measuring, capsys):
    assert main([*WORDS, "--json", "result.json"]) == 0
    printed = capsys.readouterr()
    assert "softmax" in printed.out
    assert "left)" in printed.err
    before = Path("result.json").read_text()

    def again(**operands: Any) -> Any:
        raise AssertionError("what is done is not done again")

    measuring["softmax"].attend = again
    assert main([*WORDS, "--resume", "result.json"]) == 0
    assert Path("result.json").read_text() == before


def test_results_go_where_nobody_said_otherwise(measuring):
    assert main(WORDS) == 0
    assert len(list(write.FOLDER.glob("*-gpu-none.json"))) == 1


class ReplacedError(Exception):
    """Of this process, by another."""


def test_a_lost_gpu_is_another_processes(measuring, monkeypatch):
    def lost(*_: Any, **__: Any) -> Any:
        raise LostError("milepost: an illegal access")

    def replaced(_: str, called: list[str]) -> Any:
        raise ReplacedError(called)

    monkeypatch.setattr(run, "run", lost)
    monkeypatch.setattr(command.os, "execv", replaced)
    monkeypatch.setattr(command.os, "closerange", lambda *given: None)
    with pytest.raises(ReplacedError) as caught:
        main([*WORDS, "--json", "again.json"])
    (called,) = caught.value.args
    assert called[called.index("--resume") + 1] == "again.json"
    assert "--json" not in called
    assert float(called[called.index("--seconds") + 1]) <= 540


def test_an_interruption_is_no_traceback(measuring, monkeypatch, capsys):
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run", interrupted)
    assert main([*WORDS, "--json", "again.json"]) == command.STOPPED
    assert "stopped; `milepost bench table again.json`" in capsys.readouterr().err


def test_a_process_that_hangs_is_ended(monkeypatch, tmp_path, capsys):
    ended: list[int] = []
    monkeypatch.setattr(command.os, "_exit", ended.append)
    timer = command.watched(0.01, tmp_path / "result.json")
    timer.join(10)
    assert ended == [command.HUNG]
    assert "--resume" in capsys.readouterr().err
