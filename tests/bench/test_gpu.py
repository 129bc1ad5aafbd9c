"""The whole run on a CPU in place of a GPU, so that no line of it is first executed on one.

Most of it with kernels that are the reference by another name, and small sizes; once with the
kernels themselves, interpreted.
"""

import dataclasses
import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from milepost import cli
from milepost.bench import check, write
from milepost.bench.cases import HALF, NEVER, TYPICAL, Shape, operands
from milepost.bench.gpu import (
    baselines,
    cells,
    command,
    device,
    model,
    plan,
    results,
    run,
    table,
    tune,
    worker,
)
from milepost.bench.gpu.__main__ import run as main
from milepost.bench.gpu.cells import Cell
from milepost.bench.gpu.device import Cpu, Cuda, LostError
from milepost.bench.gpu.plan import Options, Plan
from milepost.bench.measure import Limits
from milepost.bench.results import BOTH, FORWARD
from milepost.errors import UsageError
from milepost.ops import dispatch, triton

OPS = ("softmax", "bias", "relative", "cope", "cope_alibi", "forgetting", "stick_breaking")


def reference(op: str) -> SimpleNamespace:
    """A kernel for an op that is the reference's own function."""
    attend = dispatch.implementation("reference", op).attend

    def call(**operands: Any) -> Any:
        for name in dispatch.UNKNOWN_TO_REFERENCE:
            operands.pop(name, None)
        return attend(**operands)

    return SimpleNamespace(attend=call, refusal=lambda **operands: None)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Triton kernels by op, all of them the reference; a test may replace one."""
    monkeypatch.setattr(triton, "interpreted", lambda: True)
    monkeypatch.setattr(triton, "missing", lambda: None)
    found = {op: reference(op) for op in OPS}
    monkeypatch.setitem(dispatch.MODULES, "triton", found)
    return found


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that a CPU gets through."""
    for module in (cells, worker, tune):
        monkeypatch.setattr(module, "HEADS", 2, raising=False)
    monkeypatch.setattr(cells, "TOKENS", 32)
    monkeypatch.setattr(cells, "CACHED", 64)
    monkeypatch.setattr(worker, "LONG", Shape(1, 2, 2, 24, 24, 16, rows=5))
    monkeypatch.setattr(worker, "SQUARE", Shape(1, 2, 2, 32, 32, 16, rows=5))
    monkeypatch.setattr(worker, "MODEL", Shape(1, 2, 2, 16, 16, 16, rows=5))
    monkeypatch.setattr(worker, "DECODE", Shape(1, 2, 2, 1, 16, 16, rows=5))
    monkeypatch.setattr(tune, "CHECKED", Shape(1, 2, 2, 24, 24, 16, rows=5))
    monkeypatch.setattr(tune, "CHECKED_CACHE", Shape(1, 2, 2, 1, 32, 16, rows=5))
    monkeypatch.setattr(check, "QUERIES", 7)
    monkeypatch.setattr(check, "KEYS", 13)
    monkeypatch.setattr(baselines, "MASK_BLOCK", 16)
    monkeypatch.setattr(plan, "TABLE_LENGTHS", (16, 32))
    monkeypatch.setattr(plan, "OTHER_LENGTH", 16)
    monkeypatch.setattr(plan, "ENCODINGS", ("cope", "none"))
    monkeypatch.setattr("torch.nn.attention.flex_attention.flex_attention", written_out)
    baselines._flex.cache_clear()


def written_out(
    query: Any, key: Any, value: Any, score_mod: Any = None, block_mask: Any = None
) -> Any:
    """FlexAttention in plain PyTorch: its own has no backward on CPUs."""
    B, H, S, D = query.shape
    b, h, i = (torch.arange(n).view([-1] + [1] * k) for n, k in ((B, 3), (H, 2), (S, 1)))
    j = torch.arange(key.shape[2])
    score = query @ key.mT / D**0.5
    if score_mod is not None:
        score = score_mod(score, b, h, i, j)
    return score.masked_fill(~block_mask.mask_mod(b, h, i, j), -torch.inf).softmax(-1) @ value


FLEX = flex_attention


@pytest.fixture
def planned() -> Any:
    """A small plan, with changes."""

    def make(**changes: Any) -> Plan:
        options = Options(lengths="16,32,48", head_dims="16,32", rounds=1, dtype="float32")
        made = plan.plan(dataclasses.replace(options, **changes))
        return dataclasses.replace(
            made,
            caches=(32,),
            memory_lengths=(16,),
            model_lengths=(8,),
            least_seconds=1e-9,
            limits=Limits(most=1, seconds=0.0, least=1),
        )

    return make


def tiny_step(encoding: str | None, length: int, device: str) -> Any:
    return STEP(encoding, length, device, preset="flip-flop/mini", vocabulary=7)


STEP = model.step


@pytest.fixture
def started(planned: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a small plan, in this process."""
    monkeypatch.setattr(model, "TOKENS", 16)
    monkeypatch.setattr(model, "step", tiny_step)

    def start(clock: Any = lambda: 0.0, record: Any = None, **changes: Any) -> Any:
        fake = Cpu()
        path = tmp_path / "result.json"
        found = run.run(
            planned(**changes),
            path,
            fake,
            pool=worker.here(fake),
            clock=clock,
            record=record,
        )
        assert results.load(path) == json.loads(json.dumps(found))
        return found

    return start


def test_a_run_measures_all_that_is_planned(kernels, started, planned, tmp_path, capsys):
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
def test_the_kernels_themselves_interpreted(started, monkeypatch, planned):
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


def test_when_the_time_is_over_the_rest_is_named(kernels, started):
    record = started(clock=Clock(1.0), seconds=30.0, parts="table,sweep", ops="softmax")
    assert record["finished"]
    assert record["cases"]
    assert record["not_reached"]
    assert (
        len(record["cases"]) + len(record["not_reached"])
        == len([*record["done"], *record["not_reached"]]) - 1
    )  # the ceilings
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


def test_other_bits_in_a_second_run_are_reported(kernels, started):
    right, calls = kernels["softmax"].attend, []

    def shaky(**operands: Any) -> Any:
        calls.append(None)
        return right(**operands) * (1 + 1e-6 * len(calls))

    kernels["softmax"].attend = shaky
    record = started(ops="softmax", lengths="16", head_dims="16", parts="checks")
    assert any("other bits of output" in line for line in results.failures(record))


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


def test_published_kernels_are_called_as_they_want_to_be(kernels, monkeypatch):
    from milepost import ops

    def theirs(q: Any, k: Any, v: Any, g: Any) -> Any:
        turned = [x.transpose(1, 2) for x in (q, k, v)]
        out = ops.forgetting_attention(*turned, g.transpose(1, 2), backend="reference")
        return out.transpose(1, 2)

    def fox(q: Any, k: Any, v: Any, log_fgate: Any, *, head_first: bool) -> Any:
        assert head_first
        return ops.forgetting_attention(q, k, v, log_fgate, backend="reference")

    def stick(q: Any, k: Any, v: Any) -> Any:
        return ops.stick_breaking_attention(q, k, v, backend="reference")

    modules = {
        "fla.ops.forgetting_attn": SimpleNamespace(parallel_forgetting_attn=theirs),
        "forgetting_transformer": SimpleNamespace(forgetting_attention=fox),
        "stickbreaking_attention.sb_attn": SimpleNamespace(sb_attn=stick),
    }
    monkeypatch.setattr(baselines, "import_module", modules.__getitem__)
    monkeypatch.setattr(baselines, "missing", lambda name: None)
    for op, name in (("forgetting", "fla"), ("forgetting", "fox-official")):
        job = {"kind": "baseline", "op": op, "contender": name, "dtype": "float32", "head_dim": 16}
        (found,) = worker.findings(job, Cpu())
        assert found["verdict"] == "right", found
    job |= {"op": "stick_breaking", "contender": "stick-official"}
    (found,) = worker.findings(job, Cpu())
    assert found["verdict"] == "right", found
    monkeypatch.setattr(baselines, "import_module", lambda name: SimpleNamespace())
    (found,) = worker.findings(job, Cpu())
    assert found["verdict"] == "refused"


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


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("op", baselines.FLEXIBLE)
def test_flex_says_what_the_op_does(op):
    from milepost.bench.contenders import by

    shape = Shape(2, 2, 2, 48, 48, 16, rows=5)
    given = operands(op, TYPICAL, shape, torch.float32)
    mask = baselines.causal_blocks(48, "cpu")
    with torch.no_grad():
        actual = baselines.flex_call(op, FLEX, mask)(**given)
        expected = by(op, "reference")(**given)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


def test_the_mask_is_the_one_that_pytorch_makes():
    ours = baselines.causal_blocks(48, "cpu")
    theirs = create_block_mask(baselines.causal, None, None, 48, 48, device="cpu", BLOCK_SIZE=16)
    assert ours.to_dense().equal(theirs.to_dense())
    assert ours.shape == theirs.shape
    for name in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks"):
        assert getattr(ours, name).equal(getattr(theirs, name)), name


def test_half_open_gates_are_half_open():
    given = operands("cope", HALF, Shape(1, 2, 2, 9, 9, 8), torch.float32)
    assert (given["query"] @ given["key"].mT).abs().max() == 0
    assert given["query"].any()
    assert given["key"].any()
    forgets = operands("forgetting", HALF, Shape(1, 2, 2, 9, 9, 8), torch.float32)
    assert forgets["log_f"].exp().allclose(torch.tensor(0.5))


def test_workers_are_processes(planned, monkeypatch):
    found = []
    job = {"kind": "op", "op": "softmax", "dtype": "float32", "head_dim": 16, "timed": False}
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    worker.in_processes([job], 120.0, lambda *ended: found.append(ended))
    ((asked, findings, why),) = found
    assert asked == job
    assert why is None
    if not torch.cuda.is_available():
        assert findings[0]["verdict"] == "refused"  # the kernels want a GPU
    worker.in_processes([{**job, "op": "none"}], 120.0, lambda *ended: found.append(ended))
    assert found[-1][2].startswith("KeyError")
    worker.in_processes([job], 0.0, lambda *ended: found.append(ended))
    assert found[-1][1:] == ([], "not reached")
    worker.in_processes([job], 120.0, lambda *ended: found.append(ended), limit=1.0)
    assert found[-1][1:] == ([], "stopped after 1 s")


def test_tuning_takes_the_fastest_that_is_right(kernels, planned, monkeypatch):
    taken = {"now": 0.0}
    best = {"forward": [128, 64, 8, 2], "backward_query": [64, 64, 8, 2]}

    def seconds(self: Any, job: Any, chosen: Any, direction: str, shape: Any) -> Any:
        for index, one in enumerate(chosen):
            for _ in range(2):
                yield index, 0.5 if any(best.get(k) == v for k, v in one.items()) else 1.0

    monkeypatch.setattr(tune.Tuner, "seconds", seconds)
    chosen = planned(ops="softmax,cope", head_dims="64", dtype="bfloat16")
    saved: list[Any] = []
    record = tune.run(
        chosen,
        Cpu(),
        pool=worker.here(Cpu()),
        clock=lambda: taken["now"],
        save=lambda found: saved.append(json.dumps(found)),
        watch=print,
        timed=Shape(1, 2, 2, 32, 32, 64),
        cache=Shape(1, 2, 2, 1, 32, 64),
    )
    assert record["finished"]
    assert record["failures"] == []
    assert saved
    won = {(one["kind"], one["kernel"]): one["blocks"] for one in record["winners"]}
    assert won["softmax", "forward"] == [128, 64, 8, 2]
    assert won["cope", "backward_query"] == [64, 64, 8, 2]
    assert '("forward", "softmax", 64, 2): Blocks(128, 64, 8, 2),' in tune.text(record)
    compile(tune.text(record), "table", "exec")


def test_a_candidate_is_timed_with_its_blocks(kernels, planned):
    from milepost.ops.triton._blocks import Sizes, blocks

    seen = set()
    right = kernels["softmax"].attend

    def look(**operands: Any) -> Any:
        seen.add(tuple(blocks("forward", Sizes("softmax", 64, 2))))
        return right(**operands)

    kernels["softmax"].attend = look
    record: dict[str, Any] = {"tried": [], "winners": [], "together": []}
    shape = Shape(1, 2, 2, 16, 16, 64)
    tuner = tune.Tuner(planned(), Cpu(), worker.here(Cpu()), lambda: 0.0, record, shape, shape)
    job = {"op": "softmax", "head_dim": 64, "dtype": "bfloat16"}
    tuner.tune(job, 100.0)
    assert set(tune.FORWARD_BLOCKS) <= seen


@pytest.mark.parametrize("job_op", ["softmax", "cope", "stick_breaking"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_candidates_keep_the_kernels_conditions(job_op, dtype):
    job = {"op": job_op, "head_dim": 64, "dtype": dtype}
    now = tune.present(job)
    for stage in tune.stages(job):
        found = tune.candidates(job, stage)
        assert found[0] == {kernel: now[kernel] for kernel in stage}
        assert len(found) > 1
        for one in found:
            assert len({blocks[1] for blocks in one.values()}) == 1 or one == found[0]
            assert tune.fits(job_op, now | one)


def test_a_dry_run_says_what_and_how_long(capsys):
    assert main(["--dry-run", "--lengths", "16,32,48", "--head-dims", "16"]) == 0
    printed = capsys.readouterr().out
    assert all(part in printed for part in plan.PARTS)
    assert "that it may take" in printed
    assert main(["--dry-run", "--tune", "--seconds", "100"]) == 0
    assert "does not fit" in capsys.readouterr().out


BARE = """
import sys
for name in ("tyro", "beartype", "triton", "milepost.ops.native._kernels"):
    sys.modules[name] = None
from milepost.bench.gpu.__main__ import run
assert run(["--dry-run"]) == 0
assert run([]) == 2
from milepost.bench.gpu import command, model, run, table, tune, worker
assert not [name for name in ("tyro", "beartype") if sys.modules[name] is not None]
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="would measure")
def test_a_bare_source_tree_is_enough():
    ended = subprocess.run(
        [sys.executable, "-c", BARE], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "What would be measured" in ended.stdout
    assert "found none" in ended.stderr


def test_the_two_command_lines_are_one(monkeypatch, tmp_path, capsys):
    asked: list[Any] = []
    monkeypatch.setattr(command, "main", lambda request: asked.append(request) or 0)
    monkeypatch.setattr("milepost.bench.gpu.__main__.main", command.main)
    words = ["--ops", "cope", "--seconds", "30", "--dry-run", "--out", "there"]
    assert cli.main(["bench", "gpu", *words]) == 0
    assert main(words) == 0
    assert main(command.command_line(asked[0])) == 0
    assert cli.main(["bench", "gpu"]) == 0
    assert main([]) == 0
    assert asked[0] == asked[1] == asked[2]
    assert asked[3] == asked[4]


def test_a_saved_result_is_shown(kernels, started, tmp_path, capsys):
    record = started(ops="softmax", lengths="16", head_dims="16", parts="table")
    path = str(tmp_path / "result.json")
    assert cli.main(["bench", "table", path, "--plot"]) == 0
    printed = capsys.readouterr()
    assert "Time over that of another" in printed.out
    assert "result.md" in printed.err
    assert cli.main(["bench", "table", path, "--markdown", "--summary"]) == 0
    assert capsys.readouterr().out == table.markdown(record, only_summary=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ops", "coep"], "unknown name for ops 'coep': did you mean 'cope'"),
        (["--parts", "tabel"], "unknown name for parts 'tabel': did you mean 'table'"),
        (["--lengths", "1000"], "lengths must be multiples of 16, got 1000"),
        (["--head-dims", "48"], "head-dims must be powers of 2 from 16 to 256, got 48"),
        (["--dtype", "float8"], "unknown dtype 'float8'"),
        (["--seconds", "0"], "seconds must be a number above 0, got 0.0"),
        (["--rounds", "0"], "rounds must be at least 1, got 0"),
        (["--resume", "a.json", "--json", "b.json"], "resume goes on with a file of results"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(words, message, capsys):
    assert main(["--dry-run", *words]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_remedy(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in ([], ["--tune"]):
        assert main(["--lengths", "16", *words]) == 2
        assert "found none" in (printed := capsys.readouterr().err)
        assert "--dry-run" in printed
    assert list(tmp_path.iterdir()) == []


def test_the_command_measures_and_resumes(kernels, planned, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("milepost.bench.gpu.device.gpu", Cpu)
    monkeypatch.setattr(worker, "in_processes", worker.here(Cpu()))
    words = ["--ops", "softmax", "--lengths", "16", "--head-dims", "16", "--parts", "table,checks"]
    words += ["--rounds", "1", "--dtype", "float32"]
    assert main([*words, "--json", "result.json"]) == 0
    printed = capsys.readouterr()
    assert "softmax" in printed.out
    assert "left)" in printed.err
    assert main([*words, "--resume", "result.json"]) == 0
    assert main(words) == 0
    assert len(list(write.FOLDER.glob("*-gpu-none.json"))) == 1

    def lost(*_: Any, **__: Any) -> Any:
        raise LostError("milepost: an illegal access")

    said: list[Any] = []
    monkeypatch.setattr(run, "run", lost)
    monkeypatch.setattr(command.os, "execv", lambda *given: said.append(given))
    monkeypatch.setattr(command.os, "closerange", lambda *given: None)
    with pytest.raises(AssertionError):  # execv does not come back
        main([*words, "--json", "again.json"])
    ((_, called),) = said
    assert called[called.index("--resume") + 1] == "again.json"
    assert "--json" not in called
    assert float(called[called.index("--seconds") + 1]) <= 540

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run", interrupted)
    assert main([*words, "--json", "again.json"]) == command.STOPPED


class Stream:
    """A stand-in for streams, graphs and events of torch.cuda."""

    def __init__(self, *_: Any, **given: Any) -> None:
        assert given in ({}, {"enable_timing": True})
        self.replayed = 0

    def __enter__(self) -> None:
        pass

    __exit__ = wait_stream = record = synchronize = lambda *_: None

    def elapsed_time(self, end: Any) -> float:
        return 40.0  # milliseconds

    def replay(self) -> None:
        self.replayed += 1


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """The GPU's own class, over a torch.cuda that computes on the CPU."""
    facts = SimpleNamespace(
        name="NVIDIA H200", multi_processor_count=132, total_memory=2**37, major=9, minor=0
    )
    replaced = {
        "Event": Stream,
        "Stream": Stream,
        "CUDAGraph": Stream,
        "current_stream": Stream,
        "stream": Stream,
        "graph": lambda graph: graph,
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "reset_peak_memory_stats": lambda: None,
        "memory_allocated": lambda: 100,
        "max_memory_allocated": lambda: 350,
        "get_device_properties": lambda index: facts,
        "is_available": lambda: True,
    }
    for name, one in replaced.items():
        assert hasattr(torch.cuda, name)
        monkeypatch.setattr(torch.cuda, name, one)
    return Cuda()


def test_the_gpu_is_asked_for_what_it_has(cuda, monkeypatch):
    calls: list[int] = []
    assert cuda.time(lambda: calls.append(1), 4) == pytest.approx(0.01)
    assert len(calls) == 4
    assert cuda.peak(lambda: "result") == (250, "result")
    assert cuda.memory == 2**37
    cuda.captured(lambda: calls.append(1))()
    assert len(calls) == 8  # three to warm up, one that is captured
    cuda.synchronise()
    ones = torch.ones
    monkeypatch.setattr(torch, "ones", lambda *size, device: ones(*size))
    assert cuda.works()
    monkeypatch.setattr(torch.cuda, "synchronize", broken)
    assert not cuda.works()
    said = "580.1, 1980 MHz, 1980 MHz, 3201 MHz, 700.00 W\n"
    ended = SimpleNamespace(stdout=said)
    monkeypatch.setattr(device.subprocess, "run", lambda *_, **__: ended)
    facts = cuda.facts()
    assert (facts["gpu"], facts["multiprocessors"]) == ("NVIDIA H200", 132)
    assert (facts["driver_version"], facts["clocks.sm"]) == ("580.1", "1980 MHz")
    ended.stdout = "no devices\n"
    assert cuda.facts()["driver_version"] is None
    monkeypatch.setattr(device.subprocess, "run", no_such_program)
    assert cuda.facts()["driver_version"] is None
    assert isinstance(device.gpu(), Cuda)
    assert set(device.versions()) == {"triton", "cuda", "cudnn"}


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("an illegal memory access was encountered")


def no_such_program(*_: Any, **__: Any) -> Any:
    raise FileNotFoundError("nvidia-smi")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what PyTorch imports to compile
def test_a_compiled_backward_may_run_twice(cuda, monkeypatch):
    from torch._functorch import config

    compiled: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda f, dynamic: compiled.append(dynamic) or f)
    given = operands("cope", TYPICAL, Shape(1, 2, 2, 16, 16, 8, rows=5), torch.float32)
    cell = Cell("cope", TYPICAL, 8, 16)
    with config.patch(donated_buffer=True):
        runner = baselines.build("listing-compiled", cell, given, cuda)
        assert compiled == [False]
        assert not config.donated_buffer
    call = runner.backward()
    assert all(one.equal(other) for one, other in zip(call(), call(), strict=True))


def test_a_process_that_hangs_is_ended(monkeypatch, tmp_path, capsys):
    ended: list[int] = []
    monkeypatch.setattr(command.os, "_exit", ended.append)
    timer = command.watched(0.01, tmp_path / "result.json")
    timer.join(10)
    assert ended == [command.HUNG]
    assert "--resume" in capsys.readouterr().err


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "other.json"
    path.write_text('{"kind": "cpu"}')
    with pytest.raises(UsageError, match="no file of a GPU's results"):
        results.load(path)


def test_a_cell_knows_its_work(monkeypatch):
    monkeypatch.setattr(cells, "TOKENS", 16384)
    monkeypatch.setattr(cells, "HEADS", 16)
    cell = Cell("softmax", TYPICAL, 64, 4096)
    assert cell.shape.B == 4
    assert cell.flops(FORWARD) == 4 * 4 * 16 * 4096 * 4096 * 64 / 2
    assert cell.flops(cells.BACKWARD) == 2.5 * cell.flops(FORWARD)
    assert Cell("softmax", TYPICAL, 64, 65536).shape.B == 1
