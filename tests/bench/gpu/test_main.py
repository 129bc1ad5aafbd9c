"""The command line: the same as that of `milepost bench gpu`, and without its packages."""

import subprocess
import sys
from typing import Any

import pytest
import torch

from milepost import cli
from milepost.bench.gpu import command
from milepost.bench.gpu.__main__ import run as main

BARE = """
import sys
for name in ("tyro", "beartype", "triton", "milepost.ops.native._kernels"):
    sys.modules[name] = None
from milepost.bench.gpu.__main__ import run
assert run(["--dry-run"]) == 0
assert run(["--dry-run", "--tune"]) == 0
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
    assert "What --tune would do" in ended.stdout
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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ops", "coep"], "unknown name for ops 'coep': did you mean 'cope'"),
        (["--parts", "tabel"], "unknown name for parts 'tabel': did you mean 'table'"),
        (["--lengths", "1000"], "lengths must be multiples of 16, got 1000"),
        (["--head-dims", "48"], "head-dims must be powers of 2 from 16 to 256, got 48"),
        (["--tune", "--head-dims", "32"], "head-dims must be of 64, 128, 256 to tune, got 32"),
        (["--dry-run", "--resume", "none.json"], "none.json is no file of a GPU's results"),
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
