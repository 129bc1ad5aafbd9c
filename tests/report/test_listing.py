from dataclasses import replace

import pytest
from rich.console import Console

from milepost import studies
from milepost.report import listing


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("cope-table3", "Golovneva et al. (2024), Tables 3 and 4; 45 runs"),
        ("tape-figure7", "Zhu et al. (2025), Figure 7; 30 runs"),  # 2 arms, not of all 7 rows
        ("fox-length", "Lin et al. (2025); Tan et al. (2024); 30 runs"),
        ("tape-table2", "Zhu et al. (2025), Table 2 and Figure 3; 27 runs"),
        ("tape-table1", "Zhu et al. (2025), Tables 1, 10 and 11; 264 runs"),  # 11 * (7 + 1) * 3
        ("tape-table9", "Zhu et al. (2025), Table 9; 4 runs, at paper scale alone"),
    ],
)
def test_what_stands_below_a_study(name, told):
    study = replace(studies.load(name), minutes=None)
    assert listing.about(study) == told
    timed = replace(study, minutes=12)
    assert listing.about(timed).startswith(told.split(", at")[0] + ", ~12 min")


def test_every_study_has_two_lines_and_what_it_needs(capsys, monkeypatch):
    load = studies.load
    for minutes in (None, 7):
        monkeypatch.setattr(
            studies, "load", lambda name, minutes=minutes: replace(load(name), minutes=minutes)
        )
        for line in listing.lines():
            Console(width=100).print(line)
        printed = capsys.readouterr().out.splitlines()
        needs = sum(bool(load(name).needs) for name in studies.names())
        assert len(printed) == 2 * len(studies.names()) + needs + 2 * (minutes is not None)
        assert ("two cores" in printed[-1]) == (minutes is not None)
