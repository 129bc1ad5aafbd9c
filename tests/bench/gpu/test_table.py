"""A result is shown again from its file, as it was after the run."""

from milepost import cli
from milepost.bench.gpu import table


def test_a_saved_result_is_shown(kernels, started, tmp_path, capsys):
    record = started(ops="softmax", lengths="16", head_dims="16", parts="table")
    path = str(tmp_path / "result.json")
    assert cli.main(["bench", "table", path, "--plot"]) == 0
    printed = capsys.readouterr()
    assert "Time over that of another" in printed.out
    assert "result.md" in printed.err
    assert cli.main(["bench", "table", path, "--markdown", "--summary"]) == 0
    assert capsys.readouterr().out == table.markdown(record, only_summary=True)
