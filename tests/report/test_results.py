import json

import pytest

from milepost.errors import UsageError
from milepost.report.results import differ, load, mean_and_spread, percent


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0.0"),
        (0.004, "0.004"),
        (0.03, "0.03"),
        (0.094, "0.09"),
        (0.1, "0.1"),
        (0.96, "1.0"),
        (12.34, "12.3"),
        (100.0, "100.0"),
    ],
)
def test_percent_shows_a_decimal_and_never_a_false_zero(value, shown):
    assert percent(value) == shown


def test_mean_and_spread_by_hand():
    # mean 4; squares of the deviations 4 + 1 + 9 = 14, over n - 1 = 2 is 7, its root 2.6
    assert mean_and_spread([2.0, 3.0, 7.0]) == "4.0 ± 2.6"
    assert mean_and_spread([2.0]) == "2.0"
    assert mean_and_spread([]) == "–"


def test_differ_needs_twice_the_standard_error_and_half_a_point():
    # standard error of the difference: √(3²/3 + 3²/3) = 2.449
    assert not differ((0.0, 3.0, 3), (4.8, 3.0, 3))
    assert differ((0.0, 3.0, 3), (5.0, 3.0, 3))
    assert not differ((0.0, 0.0, 3), (0.4, 0.0, 3))


def verdicts(found):
    return {
        (c.column.arm, c.column.test_set, c.better, c.worse): c.verdict for c in found.comparisons
    }


def test_the_papers_differences_are_found_again_reversed_or_not(folder):
    found = verdicts(
        load(
            folder(
                {
                    ("flip-flop", "absolute", "sparse"): [20, 21, 22],
                    ("flip-flop", "rope", "sparse"): [1, 2, 3],
                    ("flip-flop", "cope", "sparse"): [4, 5, 6],
                    ("selective-copy", "absolute", "dense"): [50, 50, 50],
                    ("selective-copy", "rope", "dense"): [30, 50, 70],
                }
            )
        )
    )
    assert found["flip-flop", "sparse", "cope", "absolute"] == "found"
    assert found["flip-flop", "sparse", "cope", "rope"] == "reversed"
    assert found["selective-copy", "dense", "absolute", "rope"] == "not found"
    assert found["selective-copy", "dense", "cope", "rope"] == "not measured"
    # the paper's own spreads are too wide for 21.7 (7.9) against 20.3 (2.9) to be a difference
    assert ("flip-flop", "sparse", "rope", "absolute") not in found


def test_one_seed_judges_nothing(folder):
    errors = {("flip-flop", name, "sparse"): [value] for name, value in (("rope", 1), ("cope", 9))}
    found = verdicts(load(folder(errors, seeds=1)))
    assert set(found.values()) == {"not measured"}


def test_results_of_other_settings_are_counted_as_strays(folder):
    directory = folder({("flip-flop", "rope", "in"): [1, 2, 3]})
    (directory / "cells" / "feedfeedfeedfeed.json").write_text("{}")
    found = load(directory)
    assert (found.strays, len(found.finished), len(found.failed)) == (1, 3, 0)


def test_a_folder_without_a_study_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"holds no study: expected study\.json"):
        load(tmp_path)


def test_a_damaged_result_is_named(folder):
    directory = folder({("flip-flop", "rope", "in"): [1, 2, 3]})
    damaged = next((directory / "cells").iterdir())
    damaged.write_text(json.dumps({})[:1])
    with pytest.raises(UsageError, match=damaged.name):
        load(directory)


@pytest.mark.parametrize(
    "text", ["{}", "[]", '{"study": "cope-table2", "scale": "mini", "cells": [{}]}']
)
def test_a_damaged_declaration_is_named(text, folder):
    directory = folder({})
    (directory / "study.json").write_text(text)
    with pytest.raises(UsageError, match=r"study\.json is damaged"):
        load(directory)


def test_a_damaged_cell_of_the_grid_is_named(folder):
    directory = folder({})
    declared = json.loads((directory / "study.json").read_text())
    declared["cells"][0]["seed"] = "0"
    (directory / "study.json").write_text(json.dumps(declared))
    with pytest.raises(UsageError, match=r"study\.json is damaged"):
        load(directory)


@pytest.mark.parametrize(("kind", "error"), [("cells", 1), ("failed", None)])
def test_a_result_without_its_names_is_named(kind, error, folder):
    directory = folder({("flip-flop", "rope", "in"): [error]}, seeds=1)
    (damaged,) = (directory / kind).iterdir()
    damaged.write_text("{}")
    with pytest.raises(UsageError, match=f"{damaged.name} is damaged, .* missing"):
        load(directory)
