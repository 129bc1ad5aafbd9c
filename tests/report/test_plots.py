import logging
import re
import sys
from itertools import pairwise
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from matplotlib.text import Text

from milepost.errors import UsageError
from milepost.report import plots
from milepost.report.results import load

ERRORS = {
    ("flip-flop", name, test_set): [value, value + 2, value + 4]
    for name, value in (("absolute", 20.0), ("rope", 10.0), ("cope", 0.0))
    for test_set in ("in", "sparse", "length x2", "length x2 sparse", "length x4")
}


def texts(svg):
    return [
        "".join(node.itertext()) for node in ElementTree.fromstring(svg).iter() if is_text(node)
    ]


def is_text(node):
    return node.tag.endswith("}text")


@pytest.fixture
def drawn(folder, caplog):
    with caplog.at_level(logging.WARNING, logger="matplotlib"):
        found = plots.draw(load(folder(ERRORS)))
    assert not caplog.records
    return found


def test_every_kind_is_drawn_where_there_are_results(drawn):
    assert {kind: list(by_name) for kind, by_name in drawn.items()} == {
        "test-sets": ["flip-flop"],
        "learning": ["flip-flop"],
        "length": ["flip-flop"],
    }


def test_lines_are_labelled_where_they_end(drawn):
    for kind in ("learning", "length"):
        shown = texts(drawn[kind]["flip-flop"])
        assert {"absolute", "rope", "cope", "Flip-flop"} <= set(shown)
    assert {"128", "256", "512"} <= set(texts(drawn["length"]["flip-flop"]))


def test_the_test_sets_are_named_and_the_papers_marks_explained(drawn):
    shown = texts(drawn["test-sets"]["flip-flop"])
    assert {"in-dist", "OOD sparse", "dense", "length ×2", "the paper's"} <= set(shown)


def test_the_names_fit_however_long_they_are(folder, monkeypatch):
    names = ("absolute", "rope", "cope", "fox", "stick-breaking", "relative-capped")
    errors = {("flip-flop", name, "in"): [1.0, 2.0, 3.0] for name in names}
    figures, text = [], plots.svg_text

    def remember(figure):
        figures.append(figure)
        return text(figure)

    monkeypatch.setattr(plots, "svg_text", remember)
    plots.draw(load(folder(errors, encodings=names)))
    legends = [(figure, figure.axes[0].get_legend()) for figure in figures]
    assert any(legend for _, legend in legends)
    for figure, legend in legends:
        assert legend is None or legend.get_window_extent().x1 <= figure.bbox.x1


def test_a_length_changes_nothing_else(folder):
    errors = {key: value for key, value in ERRORS.items() if key[2] in ("in", "length x2 sparse")}
    assert "length" not in plots.draw(load(folder(errors)))


def test_a_drawing_follows_the_page_it_is_on(drawn):
    svg = drawn["learning"]["flip-flop"]
    assert "currentColor" in svg
    assert "var(--series-1, #0072b2)" in svg
    for told in (plots.INK, plots.QUIET, plots.RULE):
        assert told not in svg
    assert "<metadata" not in svg
    assert "<!DOCTYPE" not in svg


def test_ids_are_unique_on_a_page(drawn):
    ids = [
        name
        for by_name in drawn.values()
        for svg in by_name.values()
        for name in set(re.findall(r'\bid="([^"]*)"', svg))
    ]
    assert len(ids) == len(set(ids))
    for by_name in drawn.values():
        for svg in by_name.values():
            for used in re.findall(r'(?:href="#|url\(#)([^")]*)', svg):
                assert f'id="{used}"' in svg


def test_the_same_results_give_the_same_bytes(drawn, folder):
    assert plots.draw(load(folder(ERRORS))) == drawn


def test_nothing_is_drawn_of_nothing(folder):
    assert plots.draw(load(folder({}))) == {}


def test_many_names_and_long_ones_have_room():
    def names_of(ends):
        figure, axes = plots.axes_with("title", "x", "y")
        before = figure.get_size_inches().tolist()
        axes.plot([0, 1], [0, 20])
        plots.label_directly(axes, SimpleNamespace(rows=[*ends]), ends)
        figure.draw_without_rendering()
        letters = [Text.get_window_extent(text) for text in axes.texts]  # without the line
        grown = [after > was for after, was in zip(figure.get_size_inches(), before, strict=True)]
        joined = [text.arrow_patch is not None for text in axes.texts]
        assert [text.get_text() for text in axes.texts] == [*ends]
        return letters, grown, joined

    letters, grown, joined = names_of({"cope": (1, 20), "rope": (1, 0)})
    assert grown == joined == [False, False]
    letters, grown, joined = names_of({"cope": (1, 20), "rope": (0.5, 0)})
    assert (grown, joined) == ([False, False], [True, True])
    assert letters[0].x0 == pytest.approx(letters[1].x0)
    many = {f"encoding {i}": (1, i % 3) for i in range(20)}
    letters, grown, joined = names_of({**many, "an encoding of many words": (1, 0)})
    assert grown == [True, True]
    assert all(joined)
    letters.sort(key=lambda box: box.y0)
    assert all(a.y1 <= b.y0 for a, b in pairwise(letters))
    assert len({round(box.x0) for box in letters}) == 1


def test_lines_without_an_end_have_no_name():
    _, axes = plots.axes_with("title", "x", "y")
    plots.label_directly(axes, SimpleNamespace(rows=[]), {})
    assert not axes.texts


def test_labels_are_moved_apart_and_keep_their_order():
    placed = plots.spread_apart([5.0, 0.0, 5.1], gap=1.0, low=0.0, high=9.0)
    assert placed == [5.0, 0.0, 6.0]
    placed = plots.spread_apart([5.0, 0.0, 5.1], gap=1.0, low=0.5, high=5.5)
    assert placed == [4.5, 0.5, 5.5]
    # no room for all
    assert plots.spread_apart([0.0, 0.0, 0.0], gap=1.0, low=0.0, high=1.0) == [-1.0, 0.0, 1.0]


def test_without_matplotlib_the_extra_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r'pip install "milepost\[plot\]"'):
        plots.draw(load(folder(ERRORS)))


def test_a_drawing_of_its_own_has_whole_colours_on_white(folder):
    svg = next(iter(plots.draw(load(folder(ERRORS)))["length"].values()))
    assert "var(--" in svg
    alone = plots.plain(svg)
    assert "var(" not in alone
    assert "currentColor" not in alone
    assert 'style="background: #ffffff"' in alone
    assert plots.SERIES[0] in alone


def test_a_paper_s_figures_of_another_size_are_left_out(monkeypatch):
    from .made_up import results, text

    drawn, original = [], plots.svg_text
    monkeypatch.setattr(plots, "svg_text", lambda figure: drawn.append(figure) or original(figure))
    found = results({("text", "rope"): text(40, 41, 42), ("text", "cope"): text(30, 31, 32)})
    plots.draw(found)
    places = [x for figure in drawn for line in figure.axes[0].lines for x in line.get_xdata()]
    # the paper's are 4.0 and 3.0
    assert min(place for place in places if place > 1) >= 30


def test_a_rectangle_is_written_shortly_and_lies_where_it_did():
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    figure = Figure(figsize=(1, 1))  # of 72 points
    figure.add_artist(Rectangle((0.25, 0.5), 0.5, 0.25, transform=figure.transFigure))
    svg = plots.svg_text(figure)
    (path,) = re.findall(r'd="(M18[^"]*)"', svg)
    numbers = [float(number) for number in re.findall(r"[\d.]+", path)]
    assert re.fullmatch(r"M\S+ \S+H\S+V\S+H\S+z\s*", path)
    assert numbers == [18, 36, 54, 18, 18]
