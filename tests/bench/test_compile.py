"""The gate: no shipped configuration of the GPU kernels spills, or takes more than there is."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from milepost import cli, machine
from milepost.bench import compile as compiling
from milepost.bench import compiled, shipped
from milepost.bench.compile import TARGETS
from milepost.errors import UsageError
from milepost.ops import triton as gpu

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.6", "3.9")
PARTS = {"sm_90": ["sm_90"], "others": ["sm_80", "sm_100", "gfx942"]}
TABLES = {
    (version, part): ROOT / f"bench/compiled/triton-{version}-{part}.json"
    for version in VERSIONS
    for part in PARTS
}

needs_triton = pytest.mark.skipif(gpu.missing() is not None, reason=str(gpu.missing()))


def configurations(rows: Iterable[compiled.Record], target: str) -> list[tuple[Any, ...]]:
    """What is compiled for a target, with its blocks."""
    names = ("op", "dtype", "head_dim", "variant", "kernel", "M", "N", "step", "warps", "stages")
    return [tuple(row[name] for name in names) for row in rows if row["target"] == target]


def called_by(row: compiled.Record) -> shipped.Call:
    """The call that launches a kernel."""
    return shipped.Call(row["op"], row["dtype"], row["head_dim"], row["variant"])


def record_of(*rows: dict[str, Any]) -> compiled.Record:
    """A record with these rows."""
    return {
        "format": compiled.FORMAT,
        "kind": compiled.KIND,
        "date": "2026-11-21T12:00:00+00:00",
        "which": "shipped",
        "targets": {name: {"shared": TARGETS[name].shared} for name in ("sm_80", "sm_90")},
        "versions": {**machine.versions(), "triton": "3.9.0"},
        "source": {"commit": "0123456789abcdef", "dirty": False},
        "configurations": list(rows),
    }


ROW: dict[str, Any] = {
    "target": "sm_90",
    **shipped.Call("cope", "bfloat16", 64).written(),
    "kernel": "forward",
    "M": 64,
    "N": 32,
    "step": None,
    "warps": 4,
    "stages": 2,
    "registers": 168,
    "stack": 0,
    "spills": 0,
    "shared": 40960,
    "code": 16 * 1024,
    "instructions": {"HGMMA": 16, "MUFU": 70},
}


# The gate itself ----------------------------------------------------------------------------------


@needs_triton
@pytest.mark.parametrize("target", TARGETS)
def test_what_is_shipped_compiles_without_spills_and_within_memory(target):
    record = compiling.run([target], which="gate", jobs=2, instructions=False)
    assert list(compiled.failures(record)) == []
    called = {call.label for call in shipped.gate(target)}
    assert {called_by(row).label for row in record["configurations"]} == called


@needs_triton
@pytest.mark.parametrize("target", TARGETS)
def test_the_committed_tables_have_what_is_launched_today(target):
    calls = shipped.shipped(target)
    launched = compiling.compile_calls(target, calls, jobs=1, compiling=False)
    assert {called_by(row) for row in launched} == set(calls)
    (part,) = [name for name in PARTS if target in PARTS[name]]
    for version in VERSIONS:
        path = TABLES[version, part]
        rows = compiled.load(path)["configurations"]
        assert configurations(rows, target) == configurations(launched, target), (
            f"with Triton {version}: milepost bench compile --targets {','.join(PARTS[part])} "
            f"--json {path.relative_to(ROOT)}"
        )


@pytest.mark.parametrize(("version", "part"), TABLES)
def test_in_a_committed_table_nothing_is_wrong(version, part):
    record = compiled.load(TABLES[version, part])
    assert list(record["targets"]) == PARTS[part]
    assert record["which"] == "shipped"
    assert list(compiled.failures(record)) == []
    assert record["source"]["dirty"] is False
    assert record["versions"]["triton"].startswith(f"{version}.")
    # the tiles of sm_80 are those of smaller GPUs too
    for row in record["configurations"]:
        assert row["target"] != "sm_80" or row["shared"] <= 99 * 1024


def test_the_committed_tables_have_every_target():
    assert sorted(target for part in PARTS.values() for target in part) == sorted(TARGETS)
    assert set((ROOT / "bench/compiled").iterdir()) == set(TABLES.values())


# What it catches ----------------------------------------------------------------------------------


def made_up(target: str, *calls: Any, **options: Any) -> compiled.Record:
    rows = compiling.compile_calls(target, calls, jobs=1, **options)
    return record_of(*rows) | {"targets": {target: {"shared": TARGETS[target].shared}}}


@needs_triton
@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_made_up_kernels_that_may_not_be_shipped_are_caught(target):
    from .made_up import Product, Wrong

    modest, spilling = Product(64, 64, 32, 4, 1), Product(128, 256, 32, 1, 1)
    record = made_up(target, modest, spilling, Wrong())
    good, spilled, wrong = record["configurations"]
    assert good["kernel"] == spilled["kernel"] == "product"
    assert (good["stack"], good["spills"]) == (0, 0)
    assert good["registers"] >= 16
    assert good["instructions"]["HGMMA" if target == "sm_90" else "MFMA"] > 0
    assert good["code"] < spilled["code"]
    assert spilled["stack"] > 0
    assert spilled["spills"] > 0
    assert "failure" in wrong
    of_spilled, of_wrong = compiled.failures(record)
    assert of_spilled.startswith(f"{target}: product of product, float16, head_dim 32: spills, ")
    assert of_wrong.startswith(f"{target}: wrong of wrong, float16, head_dim 3: does not compile (")


@needs_triton
def test_a_kernel_with_too_much_shared_memory_is_caught_without_its_instructions():
    from .made_up import Product

    record = made_up("sm_80", Product(128, 128, 64, 8, 8), instructions=False)
    [row] = record["configurations"]
    assert row["shared"] > TARGETS["sm_80"].shared == 166912
    assert row["instructions"] is None
    [failure] = compiled.failures(record)
    assert failure.endswith(f"takes {row['shared']} bytes of shared memory, a block has 166912")


def test_failures_name_the_configuration():
    fine = ROW | {"target": "sm_80"}
    too_much = ROW | {"shared": 232449, "variant": "start"}
    wide = ROW | {"tensor_memory": 513}
    record = record_of(fine, ROW | {"stack": 8, "spills": None}, too_much, wide)
    name = "sm_90: forward of cope, bfloat16, head_dim 64"
    assert list(compiled.failures(record)) == [
        f"{name}: spills, 8 bytes of stack in 168 registers",
        f"{name}, start: takes 232449 bytes of shared memory, a block has 232448",
        f"{name}: takes 513 columns of tensor memory, a block has 512",
    ]


# Which configurations -----------------------------------------------------------------------------


def test_every_op_is_shipped_for_every_target():
    for target in TARGETS:
        calls = shipped.shipped(target)
        assert len(set(calls)) == len(calls)
        assert {call.op for call in calls} >= set(shipped.EXACT)
        assert set(shipped.gate(target)) < set(calls) < set(shipped.every(target))
    assert {call.op for call in shipped.shipped("sm_90")} == set(shipped.OPS)


# The command --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--targets", "sm_91"], "unknown target 'sm_91': did you mean 'sm_90'"),
        (["--targets", ""], "targets must be words separated by commas"),
        (["--ops", "coep"], "unknown name for ops 'coep': did you mean 'cope'"),
        (["--jobs", "0"], "jobs must be at least 1, got 0"),
        (["--json", "table.txt"], "json must be a path that ends in .json, got table.txt"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments, message, capsys):
    assert cli.main(["bench", "compile", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1


def test_without_triton_the_remedy(monkeypatch):
    monkeypatch.setattr(gpu, "missing", lambda: "Triton is not installed: pip install triton")
    with pytest.raises(UsageError, match="compiled by Triton, and Triton is not installed: pip"):
        compiling.run(["sm_90"])


@needs_triton
def test_the_command_prints_writes_and_fails(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    asked = []

    def rows(name, calls, *, jobs, **rest):
        asked.extend((name, call.op, jobs) for call in calls)
        return [ROW | {"target": name, "stack": 16 * (name == "sm_90")}]

    monkeypatch.setattr(compiling, "compile_calls", rows)
    command = ["bench", "compile", "--ops", "cope", "--jobs", "3"]
    assert cli.main([*command, "--targets", "sm_80", "--json", "one.json"]) == 0
    assert set(asked) == {("sm_80", "cope", 3)}
    printed = capsys.readouterr()
    assert "Kernels for sm_80" in printed.out
    assert printed.err == ""
    record = compiled.load(tmp_path / "one.json")
    assert record["configurations"] == [ROW | {"target": "sm_80"}]
    assert len((tmp_path / "one.json").read_text().splitlines()) < 40

    assert cli.main([*command, "--targets", "sm_80,sm_90"]) == 1
    printed = capsys.readouterr()
    assert "head_dim 64: spills, 16 bytes of stack in 168 registers" in printed.err

    assert cli.main(["bench", "table", "one.json"]) == 0
    assert "Kernels for sm_80" in capsys.readouterr().out
    assert cli.main(["bench", "table", "one.json", "--markdown", "--summary"]) == 0
    assert capsys.readouterr().out == compiled.markdown(record, only_summary=True)


def test_tables_show_what_did_not_compile_and_what_was_not_counted():
    failed = {name: ROW[name] for name in list(ROW)[:10]} | {"failure": "no"}
    record = record_of(ROW, ROW | {"instructions": None, "stack": 8, "step": 64}, failed)
    summed, detailed = compiled.sheets(record)
    assert summed.rows[1] == ["sm_90", "3", "1", "1", "168", "40", "227"]
    assert {len(row) for row in detailed.rows} == {len(detailed.heads)}
    text = compiled.markdown(record)
    assert "| cope | forward | bf16 | 64 | 64 × 32 | 4 | 168 | 0 | 40 | 16 HGMMA | 0 |" in text
    assert "| 64 × 32, 64 |" in text
    assert "does not compile" in text
    assert "milepost" in text


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "other.json"
    compiled.write(path, record_of() | {"format": 7})
    with pytest.raises(UsageError, match="give a file that `milepost bench compile` wrote"):
        compiled.load(path)
