"""Heat maps as SVG: panels, the map itself, its scale.

They run over one dark-to-light scale (viridis) whose lightness alone tells values apart, so that
they are read alike in print, on a dark page and by colour-blind readers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

HEAT = "viridis"
LEVELS = 20


def panels(count: int, size: float, columns: int) -> tuple[Any, list[Any]]:
    """A figure of so many square panels, `size` inches wide."""
    from matplotlib.figure import Figure

    across = min(columns, count)
    down = -(-count // across)
    figure = Figure(figsize=(size * across + 0.8, size * down + 0.7), layout="constrained")
    found = figure.subplots(down, across, squeeze=False).ravel().tolist()
    for empty in found[count:]:
        empty.set_visible(False)
    return figure, found[:count]


def image(axes: Any, grid: Sequence[Sequence[float]], low: float = 0, high: float = 1) -> None:
    """The grid in `LEVELS` colours, each one path: vectors, so that the same grid is the same file.

    The colours run from `low` to `high`, and what lies beyond has the last. NaN is left empty.
    """
    from matplotlib import colormaps
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    axes.grid(visible=False)
    axes.tick_params(labelsize=7, length=2)
    boxes: dict[int, list[list[tuple[float, float]]]] = {}
    for y, line in enumerate(grid):
        levels = [-1 if math.isnan(v) else level(v, low, high) for v in line]
        first = 0
        for shade, run in groupby(levels):
            last = first + len(list(run))
            if shade >= 0:
                left, right, top, bottom = first - 0.5, last - 0.5, y - 0.5, y + 0.5
                corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
                boxes.setdefault(shade, []).append(corners)
            first = last
    for shade, polygons in sorted(boxes.items()):
        colour = colormaps[HEAT](shade / (LEVELS - 1))
        path = Path.make_compound_path(*(Path(corners, closed=True) for corners in polygons))
        axes.add_patch(PathPatch(path, facecolor=colour, edgecolor=colour, linewidth=0.1))
    axes.set_xlim(-0.5, len(grid[0]) - 0.5)
    axes.set_ylim(len(grid) - 0.5, -0.5)
    axes.set_aspect("equal")


def level(value: float, low: float = 0, high: float = 1) -> int:
    """Which of the colours, from 0 on, stands for a value."""
    return max(0, min(LEVELS - 1, int((value - low) / (high - low) * LEVELS)))


def scale(figure: Any, panels: Sequence[Any], label: str, low: float = 0, high: float = 1) -> None:
    """The colours from `low` to `high`, beside the panels."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable

    shades = ScalarMappable(cmap=colormaps[HEAT].resampled(LEVELS))
    shades.set_clim(low, high)
    figure.colorbar(shades, ax=panels, shrink=0.6, label=label)
