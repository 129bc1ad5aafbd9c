import math
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from matplotlib import colormaps
from matplotlib.figure import Figure

from milepost.report import heat


def boxes(grid: Sequence[Sequence[float]], *ends: float) -> dict[tuple[int, int], Any]:
    """The colour of each cell that is drawn."""
    axes = Figure().subplots()
    heat.image(axes, grid, *ends)
    found = {}
    for patch in axes.patches:
        for polygon in patch.get_path().to_polygons():
            (left, top), (right, low) = polygon.min(0), polygon.max(0)
            for x in range(round(left + 0.5), round(right + 0.5)):
                found[x, round(top + 0.5)] = patch.get_facecolor()
            assert low - top == 1
    return found


def test_a_grid_is_drawn_in_whole_boxes_of_one_colour_each():
    found = boxes([[0.0, 0.0, 1.0], [math.nan, 0.5, 1.0]])
    assert set(found) == {(0, 0), (1, 0), (2, 0), (1, 1), (2, 1)}
    assert found[0, 0] == found[1, 0] != found[2, 0] == found[2, 1] != found[1, 1]
    lightness = [sum(found[place][:3]) for place in ((0, 0), (1, 1), (2, 0))]
    assert lightness == sorted(lightness)


def test_colours_run_between_the_ends_and_no_further():
    found = boxes([[-1, 0, 3, 9]], -1, 3)
    first, last = colormaps[heat.HEAT](0.0), colormaps[heat.HEAT](1.0)
    assert found[0, 0] == first
    assert found[1, 0] == colormaps[heat.HEAT](5 / 19)
    assert found[2, 0] == found[3, 0] == last
    assert boxes([[-7.0]]) == {(0, 0): first}


def test_levels_are_twentieths():
    assert [heat.level(v) for v in (0, 0.04, 0.05, 0.51, 0.999, 1)] == [0, 0, 1, 10, 19, 19]


def test_panels_fill_their_rows():
    figure, panels = heat.panels(3, 2.0, 2)
    assert len(panels) == 3
    assert figure.get_size_inches().tolist() == [4.8, 4.7]
    assert [axes.get_visible() for axes in figure.axes] == [True, True, True, False]


def test_the_scale_says_what_its_ends_are():
    figure, panels = heat.panels(1, 2.0, 1)
    heat.scale(figure, panels, "cosine", -1, 1)
    bar = figure.axes[1]
    assert bar.get_ylabel() == "cosine"
    assert bar.get_ylim() == (-1, 1)
