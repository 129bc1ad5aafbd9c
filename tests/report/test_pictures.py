import re
from dataclasses import replace

import pytest

pytest.importorskip("matplotlib")

from milepost.report import pictures

from .made_up import picture, results, text

CURVE = picture("curve", probe="perplexity", metric="perplexity")


def drawn(found):
    return pictures.draw(found).get("pictures", {})


def test_a_curve_has_a_mark_for_each_seed_and_is_named(monkeypatch):
    lines = []
    original = pictures.svg_text
    monkeypatch.setattr(
        pictures, "svg_text", lambda figure: lines.append(figure.axes[0].lines) or original(figure)
    )
    found = results({("text", "rope"): text(4, 5, 6, longer=(1, 2, 3))}, pictures=[CURVE])
    svg = drawn(found)["text-perplexity-perplexity"]
    assert ">rope<" in svg
    *marks, mean = lines[0]
    assert [list(m.get_ydata()) for m in marks] == [[4, 5, 6], [1, 2, 3]]
    assert list(mean.get_xdata()) == [1, 2]
    assert list(mean.get_ydata()) == [5, 2]


def test_a_seed_that_was_refused_or_failed_is_left_out():
    found = {("text", "rope"): [{"perplexity": {"x1": {"refused": "too long"}}}, None]}
    assert drawn(results(found, pictures=[CURVE])) == {}


def test_positions_are_those_of_the_longest_window():
    one = {
        "x1": {"position": [8], "by_position": [9.0]},
        "x2": {"position": [8, 16], "by_position": [3.0, None]},
    }
    found = results(
        {("text", "cope"): [{"perplexity": one}]},
        pictures=[picture("positions", probe="perplexity", metric="by_position")],
    )
    assert ">cope<" in drawn(found)["text-perplexity-by_position"]


def test_a_heat_map_shows_each_share_once_and_the_mean(monkeypatch):
    grids = [{"right": [[4, 0], [2, 0]], "samples": 4}, {"right": [[4, 2], [0, 0]], "samples": 4}]
    found = results(
        {("text", "rope"): [{"addition_grid": {"grid": grid}} for grid in grids]},
        pictures=[picture("heat", probe="addition_grid", metric="right")],
    )
    svg = drawn(found)["text-addition_grid-right"]
    # cells: 1, (0 + 1/2)/2, (1/2 + 0)/2, 0; their mean 0.375
    assert ">rope: 37.5 %<" in svg
    assert [re.findall(rf">{n}<", svg) != [] for n in (100, 25, 0, 75)] == [True] * 3 + [False]
    assert "<image" not in svg


def test_an_example_has_a_panel_for_each_head_and_no_pixels():
    head = {"layer": 1, "head": 0, "gates": [[0.5], [1.0, 0.0]], "position_weights": None}
    found = results(
        {("text", "cope"): [{"picture": {"example": {"tokens": ["a", "b"], "heads": [head]}}}]},
        pictures=[
            picture("example", probe="picture", metric="gates"),
            picture("example", probe="picture", metric="position_weights"),
        ],
    )
    svgs = drawn(found)
    assert list(svgs) == ["text-picture-gates"]
    svg = svgs["text-picture-gates"]
    assert ">cope, layer 1, head 0<" in svg
    assert "<image" not in svg


def test_history_is_of_the_test_set_that_is_named():
    result = {
        "errors": {},
        "probes": {},
        "history": [
            {"step": 5, "loss": 1.0, "error": 0.5, "on": {"in": 0.5, "sparse": 0.25}},
            {"step": 10, "loss": 1.0, "error": 0.1, "on": {"in": 0.1, "sparse": 0.2}},
        ],
    }
    found = results({("text", "rope"): [{}]}, pictures=[picture("history", metric="sparse")])
    object.__setattr__(found.cells[0], "result", result)
    assert ">rope<" in drawn(found)["text-sparse"]
    assert (
        drawn(results({("text", "rope"): [{}]}, pictures=[picture("history", metric="in")])) == {}
    )


def test_the_same_results_give_the_same_bytes():
    found = results({("text", "rope"): text(4, 5, 6)}, pictures=[CURVE])
    assert drawn(found) == drawn(found)


def test_rows_of_a_picture_have_hues_of_their_own_where_all_would_not():
    names = tuple(f"row {i}" for i in range(9))
    few = replace(CURVE, rows=(names[0], names[8]))
    found = results({("text", name): text(4, 5, 6) for name in few.rows}, pictures=[few])
    (svg,) = drawn(replace(found, rows=names)).values()
    assert "var(--series-1," in svg
    assert "var(--series-2," in svg
    (svg,) = drawn(replace(found, rows=names[1:])).values()
    assert "var(--series-8," in svg
