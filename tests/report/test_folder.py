"""What every kind of study reads of its folder in the same way."""

import json

from milepost.report.results import load


def test_what_failed_or_is_of_other_settings_is_said(folder):
    directory = folder({("flip-flop", "rope", "in"): [1, 2, None]})
    (directory / "cells" / "feedfeedfeedfeed.json").write_text("{}")
    found = load(directory)
    assert found.warnings == [
        "1 of 18 cells failed; report.html has the reasons. Once they are mended, `milepost study "
        "cope-table2 --scale mini --encodings absolute,rope,cope --retry` runs them again, with "
        "the same --out if there was one.",
        "1 result of other settings lies in the folder and is left out.",
    ]
    ((cell, reason),) = found.failed
    assert (cell.encoding, cell.seed) == ("rope", 2)
    assert reason.startswith("in the deep")
    assert found.status("rope") == "failed"
    assert found.status("cope") == "not run"
    assert found.minutes == 2
    ((machine, count),) = found.machines.items()
    assert "torch 2.11.0" in machine
    assert count == 2


def test_the_command_names_what_is_not_the_studys_own(folder):
    assert load(folder({}, encodings=("rope", "cope"), seeds=1)).command == (
        "milepost study cope-table2 --scale mini --encodings rope,cope --seeds 1"
    )
    directory = folder({}, encodings=("absolute", "rope", "cope", "relative"))
    declared = json.loads((directory / "study.json").read_text())
    given = {"steps": 10, "corpus": "my text", "betas": [0.9, 0.95]}
    (directory / "study.json").write_text(json.dumps({**declared, "settings": given}))
    assert load(directory).command.endswith(
        "--settings steps=10 'corpus=my text' 'betas=[0.9,0.95]'"
    )
