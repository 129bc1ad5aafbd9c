"""A run: all that is planned, and what it does when the time is over or something breaks."""

from typing import Any

import pytest
import torch

from milepost.bench.cases import HALF, NEVER, TYPICAL
from milepost.bench.gpu import baselines, cells, command, results, run, table, worker
from milepost.bench.gpu.device import Cpu, LostError
from milepost.bench.results import BOTH, FORWARD
from milepost.ops import triton


def test_a_run_measures_all_that_is_planned(kernels, started, tmp_path, capsys):
    record = started()
    assert record["finished"]
    assert record["not_reached"] == record["failures"] == []
    assert list(results.failures(record)) == []
    assert record["ceilings"]["flops"] > 0
    assert record["under_way"] is None

    verdicts = {(one["contender"], one["verdict"]) for one in record["checks"]}
    assert ("milepost", "right") in verdicts
    assert ("flex", "right") in verdicts
    assert ("listing", "right") in verdicts
    shapes = {"odd", "decoding", "long", "square"}
    assert {one["shape"] for one in record["checks"]} == shapes
    assert {one["gates"] for one in record["checks"] if one["op"] == "cope"} == {
        TYPICAL,
        HALF,
        NEVER,
    }
    assert {one["dtype"] for one in record["checks"]} == {"float32", "bfloat16", "float16"}

    parts = {case["part"] for case in record["cases"]}
    assert parts == {"table", "sweep", "decode", "others", "rest"}
    cope = next(case for case in record["cases"] if case["op"] == "cope")
    assert set(cope["directions"]) == {FORWARD, cells.BACKWARD, BOTH}
    contenders = {"milepost", "sdpa", "plain", "listing", "listing-compiled"}
    assert set(cope["directions"][BOTH]) == contenders
    assert cope["sdpa"][BOTH]["chosen"] in Cpu.sdpa_backends
    softmax = record["cases"][0]
    assert set(softmax["directions"][FORWARD]) == {"milepost", "sdpa", "flex"}
    forgetting = next(case for case in record["cases"] if case["op"] == "forgetting")
    assert forgetting["left_out"]["fla"] == "fla is not installed"
    decode = next(case for case in record["cases"] if case["decode"])
    assert set(decode["directions"]) == {FORWARD, run.GRAPH}

    assert {one["contender"] for one in record["memory"]} == {
        "milepost",
        "sdpa",
        "plain",
        "listing",
    }
    assert {one["encoding"] for one in record["models"]} > {"cope", "none", "rope", "tape"}
    assert set(record["models"][0]["seconds"]) == {"sdpa", "milepost"}

    path = tmp_path / "result.json"
    command.shown(record, path)
    printed = capsys.readouterr().out
    assert "Training a 124M model" in printed
    assert str(path) in printed
    text = (tmp_path / "result.md").read_text()
    assert text == table.markdown(record)
    assert "**cope, typical gates**" in text
    for title in ("Decoding", "Memory of forward", "Training a 124M model"):
        assert f"**{title}" in text
    pytest.importorskip("matplotlib")
    assert "D=16, half open gates" in (tmp_path / "result-gpu.svg").read_text()
    assert (tmp_path / "result-gpu-decode.svg").exists()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy, where a kernel divides by 0
def test_the_kernels_themselves_interpreted(started):
    if not triton.interpreted():
        pytest.skip("Triton is not there, or compiles for a GPU")
    record = started(ops="softmax", lengths="16", head_dims="16", parts="table,decode,memory")
    assert record["failures"] == []
    case = record["cases"][0]
    assert set(case["directions"][BOTH]) == {"milepost", "sdpa", "flex"}


class Clock:
    """A clock that goes on by itself at every look."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_when_the_time_is_over_the_rest_is_named(kernels, started, planned):
    record = started(clock=Clock(1.0), seconds=30.0, parts="table,sweep", ops="softmax")
    assert record["finished"]
    assert record["cases"]
    assert record["not_reached"]
    asked = planned(parts="table,sweep", ops="softmax")
    every = len([*asked.cells("table"), *asked.cells("sweep")])
    assert len(record["cases"]) + len(record["not_reached"]) == every
    assert len(record["cases"]) == len(record["done"]) - 1  # the ceilings
    assert all("s left)" in line for line in record["not_reached"])
    assert any(line.startswith("Not reached. ") for line in table.notes(record))

    before = len(record["cases"])
    missing = len(record["not_reached"])
    resumed = started(record=record, parts="table,sweep", ops="softmax")
    assert len(resumed["cases"]) == before + missing
    assert resumed["not_reached"] == []


def test_a_contender_that_fails_leaves_the_others(kernels, started, monkeypatch):
    def breaks(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("Tried to allocate 206 GiB")

    monkeypatch.setattr(baselines.baselines, "listing", breaks)
    record = started(ops="cope", lengths="16", head_dims="16", parts="table,memory")
    typical = record["cases"][0]
    assert typical["left_out"]["listing"] == ("forward: out of memory (Tried to allocate 206 GiB)")
    assert set(typical["directions"][BOTH]) == {"milepost", "sdpa", "plain"}
    assert any("206 GiB" in one.get("left_out", "") for one in record["memory"])
    assert any("Left out. listing: forward: out of memory" in line for line in table.notes(record))


def test_a_wrong_op_is_reported_and_marked(kernels, started):
    right = kernels["cope"].attend
    kernels["cope"].attend = lambda **operands: 0.5 * right(**operands)
    record = started(ops="cope", lengths="16", head_dims="16", parts="checks,table")
    failed = list(results.failures(record))
    assert failed[0].startswith("cope, float32, D=16, typical, odd: wrong (output, ")
    assert all(case["wrong"] for case in record["cases"])
    assert "cope ‡" in table.markdown(record)
    assert BOTH in record["cases"][0]["directions"]


def test_our_own_failure_is_a_failure_of_the_run(kernels, started):
    def breaks(**operands: Any) -> Any:
        raise RuntimeError("no kernel image")

    kernels["softmax"].attend = breaks
    record = started(ops="softmax", lengths="16", head_dims="16", parts="table")
    assert any("no kernel image" in line for line in record["failures"])
    assert "sdpa" in record["cases"][0]["directions"][FORWARD]


def test_a_lost_device_ends_the_process_and_another_goes_on(
    kernels, started, monkeypatch, tmp_path
):
    def breaks(**operands: Any) -> Any:
        raise RuntimeError("an illegal memory access was encountered")

    kernels["softmax"].attend = breaks
    with monkeypatch.context() as patched:
        patched.setattr(Cpu, "works", lambda self: False)
        with pytest.raises(LostError, match="milepost: RuntimeError: an illegal memory access"):
            started(ops="softmax", lengths="16", head_dims="16", parts="table")
    record = results.load(tmp_path / "result.json")
    assert not record["finished"]
    assert "the GPU was lost" in record["failures"][0]
    resumed = started(
        record=record, ops="softmax", lengths="16", head_dims="16", parts="table,memory"
    )
    assert resumed["finished"]
    assert len(resumed["cases"]) == 1
    assert resumed["done"][1] == "table: softmax, D=16, T=16"


def test_a_step_that_ended_the_process_is_not_begun_again(kernels, started):
    begun = started(ops="softmax", lengths="16", head_dims="16", parts="table")
    begun["done"].remove("table: softmax, D=16, T=16")
    begun |= {"cases": [], "under_way": "table: softmax, D=16, T=16"}
    record = started(record=begun, ops="softmax", lengths="16", head_dims="16", parts="table")
    assert record["cases"] == []
    assert record["failures"] == ["table: softmax, D=16, T=16: the process ended amid it"]


def test_a_published_kernel_that_was_not_checked_is_not_run(planned, monkeypatch, tmp_path):
    monkeypatch.setattr(baselines, "missing", lambda name: None)
    fake = Cpu()
    record = run.new_record(planned(), fake)
    bench = run.Bench(
        planned(), tmp_path / "x.json", fake, worker.here(fake), lambda: 0.0, record, print
    )
    assert "was not checked" in bench.barred("fla")
    job = {"op": "forgetting", "contender": "fla", "dtype": "float32", "head_dim": 16}
    record["checks"].append(bench.unchecked(job, "stopped after 60 s"))
    assert bench.barred("fla") == "stopped after 60 s"
    record["checks"][0]["verdict"] = "right"
    assert bench.barred("fla") is None
    assert bench.barred("flex") is None
