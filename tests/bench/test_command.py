import json

import pytest

from milepost import cli
from milepost.bench import results, table, write
from milepost.ops import native

pytestmark = pytest.mark.usefixtures("planned")

TINY = [
    *("bench", "cpu", "--backend", "reference", "--ops", "softmax", "--lengths", "16"),
    *("--head-dims", "8", "--threads", "1", "--rounds", "1", "--no-peak-memory"),
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_run_prints_and_writes_its_tables(capsys, tmp_path):
    assert cli.main([*TINY, "--json", "deep/result.json", "--decode", "--caches", "32"]) == 0
    printed = capsys.readouterr()
    assert "softmax, 1 thread" in printed.out
    assert "right: softmax, 1 thread" in printed.err
    record = results.load(tmp_path / "deep" / "result.json")
    assert record["finished"]
    assert len(record["cases"]) == 2
    assert (tmp_path / "deep" / "result.md").read_text() == table.markdown(record)
    plots = {path.name for path in (tmp_path / "deep").glob("*.svg")}
    assert plots <= {"result-1-thread.svg", "result-decode-1-thread.svg"}

    for path in (tmp_path / "deep").glob("result?*.*"):
        path.unlink()
    (tmp_path / "deep" / "result.json").write_text(json.dumps(record))
    assert cli.main(["bench", "table", "deep/result.json"]) == 0
    assert "softmax, 1 thread" in capsys.readouterr().out
    assert cli.main(["bench", "table", "deep/result.json", "--markdown"]) == 0
    assert capsys.readouterr().out == table.markdown(record)
    assert cli.main(["bench", "table", "deep/result.json", "--markdown", "--summary"]) == 0
    assert capsys.readouterr().out == table.markdown(record, only_summary=True)


def test_by_default_a_result_is_new_and_named_by_date_and_kernels(tmp_path):
    for _ in range(2):
        assert cli.main([*TINY, "--out", "here"]) == 0
    first, second = sorted(tmp_path.glob("here/*.json"), key=lambda path: len(path.name))
    assert second.stem == f"{first.stem}-2"
    assert first.stem == f"{results.load(first)['date'][:10]}-cpu-reference"
    assert write.place(date="2030-01-02", kernels="x86-64-v4", out=None, file=None) == (
        write.FOLDER / "2030-01-02-cpu-x86-64-v4.json"
    )


def test_a_wrong_kernel_ends_with_1(kernels, capsys):
    kernels["cope"].attend = lambda **operands: operands["query"] * 0.0
    arguments = ["native" if word == "reference" else word for word in TINY]
    arguments[arguments.index("softmax")] = "softmax,cope"
    assert cli.main([*arguments, "--json", "result.json"]) == 1
    printed = capsys.readouterr()
    assert "cope, typical gates, 1 thread, D=8, T=13: wrong, not timed" in printed.err
    assert "Not measured. cope" in printed.out


def test_ctrl_c_says_what_is_left(monkeypatch, capsys, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("milepost.bench.cpu.paired", interrupted)
    assert cli.main([*TINY, "--json", "result.json"]) == 130
    assert "`milepost bench table result.json` shows what there is" in capsys.readouterr().err
    assert not results.load(tmp_path / "result.json")["finished"]
    assert cli.main(["bench", "table", "result.json"]) == 0
    assert "The run was stopped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ops", "coep"], "unknown name for ops 'coep': did you mean 'cope'"),
        (["--lengths", "512,long"], "lengths must be whole numbers"),
        (["--isa", "avx"], "isa chooses a variant"),
        (["--json", "result.txt"], "json must be a path that ends in .json, got result.txt"),
        (["--json", "there.json"], "json must be a new file, there.json exists"),
        (["--json", "there.json/result.json"], "cannot write there.json/result.json"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments, message, capsys, tmp_path):
    (tmp_path / "there.json").write_text("{}")
    assert cli.main([*TINY, *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["there.json"]


def test_without_kernels_the_remedy(monkeypatch, capsys):
    monkeypatch.setattr(native, "missing", lambda: "no compiler was there")
    assert cli.main(["bench", "cpu"]) == 2
    assert "no compiler was there: --backend reference measures" in capsys.readouterr().err


def test_a_table_of_nothing_is_refused(capsys):
    assert cli.main(["bench", "table", "no.json"]) == 2
    assert "no.json is no file of results" in capsys.readouterr().err
