"""What a study's probes found, as SVG: curves, heat maps, one text's gates and attention.

Each `Picture` that a study declares is one drawing, in the style of `milepost.report.plots`. Heat
maps are those of `milepost.report.heat`; in the cells of a small grid the number is printed too.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any

from milepost.report import heat
from milepost.report.plots import (
    INK,
    QUIET,
    SERIES,
    axes_with,
    colour_of,
    dash_of,
    label_directly,
    seeds_and_means,
    style,
    svg_text,
    themed,
)
from milepost.report.results import Results, probed
from milepost.study.study import Picture

KIND = "pictures"
_PANEL = 2.05
_COLUMNS = 4
_TOKENS_SHOWN = 64
_FEW_DIGITS = 6


def draw(results: Results) -> dict[str, dict[str, str]]:
    """Every picture that has something to show, by kind of plot and name."""
    with style():
        drawn = {
            one.name: _DRAW[one.kind](_of(results, one), one) for one in results.study.pictures
        }
    found = {name: themed(svg, f"{KIND}-{name}") for name, svg in drawn.items() if svg}
    return {KIND: found} if found else {}


def _curve(results: Results, picture: Picture) -> str | None:
    """A metric against the probe's keys: each seed a mark, their mean a line."""
    curves: dict[str, dict[float, list[float]]] = {}
    for row in _rows(results, picture):
        points: dict[float, list[float]] = {}
        for cell in results.of(picture.arm, row):
            for key, metrics in probed(cell, picture.probe).items():
                value, place = metrics.get(picture.metric), _number_of(key)
                if value is not None and place is not None:
                    points.setdefault(place, []).append(value)
        if points:
            curves[row] = dict(sorted(points.items()))
    if not curves:
        return None
    figure, axes = axes_with(picture.title, picture.x, picture.y)
    ends = seeds_and_means(axes, results, curves)
    label_directly(axes, results, ends)
    return svg_text(figure)


def _positions(results: Results, picture: Picture) -> str | None:
    """A list of what the longest reading found against the positions it is of."""
    figure, axes = axes_with(picture.title, picture.x, picture.y)
    ends: dict[str, tuple[float, float]] = {}
    for row in _rows(results, picture):
        curves = [
            (found["position"], found[picture.metric])
            for cell in results.of(picture.arm, row)
            if (found := _longest(probed(cell, picture.probe), picture.metric)) is not None
        ]
        if not curves:
            continue
        places = curves[0][0]
        means = [
            statistics.fmean(values) if all(v is not None for v in values) else math.nan
            for values in zip(*(values for _, values in curves), strict=True)
        ]
        line = {"color": colour_of(results, row), "linestyle": dash_of(results, row)}
        axes.plot(places, means, linewidth=2.0, **line)
        known = [point for point in zip(places, means, strict=True) if math.isfinite(point[1])]
        if known:
            ends[row] = known[-1]
    if not ends:
        return None
    axes.set_xscale("log", base=2)
    label_directly(axes, results, ends)
    return svg_text(figure)


def _of(results: Results, picture: Picture) -> Results:
    """The results with the picture's rows alone, where all have not hues enough to tell them apart.

    Else a row has the same hue in every picture.
    """
    if len(results.rows) <= len(SERIES):
        return results
    return replace(results, rows=tuple(_rows(results, picture)))


def _rows(results: Results, picture: Picture) -> list[str]:
    """The rows that are drawn."""
    return [row for row in results.rows if not picture.rows or row in picture.rows]


def _longest(found: Mapping[str, Any], metric: str) -> Mapping[str, Any] | None:
    """What was found under the largest key that has the metric."""
    known = [
        (place, metrics)
        for key, metrics in found.items()
        if metric in metrics and (place := _number_of(key)) is not None
    ]
    return max(known, key=itemgetter(0))[1] if known else None


def _heat(results: Results, picture: Picture) -> str | None:
    """A grid of shares for each row, mean over seeds, with the mean over all cells above it."""
    grids: dict[str, list[list[float]]] = {}
    for row in _rows(results, picture):
        found = [
            [[right / one["samples"] for right in line] for line in one[picture.metric]]
            for cell in results.of(picture.arm, row)
            if (one := probed(cell, picture.probe).get("grid")) is not None
        ]
        if found:
            lines = zip(*found, strict=True)
            grids[row] = [[statistics.fmean(v) for v in zip(*line, strict=True)] for line in lines]
    if not grids:
        return None
    figure, panels = heat.panels(len(grids), _PANEL, _COLUMNS)
    figure.suptitle(picture.title, x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    for axes, (row, grid) in zip(panels, grids.items(), strict=True):
        heat.image(axes, grid)
        mean = statistics.fmean(value for line in grid for value in line)
        axes.set_title(f"{row}: {100 * mean:.1f} %", fontsize=9)
        few = len(grid) <= _FEW_DIGITS
        ticks = [*range(len(grid))] if few else [0, len(grid) // 2 - 1, len(grid) - 1]
        axes.set_xticks(ticks, [str(tick + 1) for tick in ticks])
        axes.set_yticks(ticks, [str(tick + 1) for tick in ticks])
        if len(grid) <= 10:
            for i, line in enumerate(grid):
                for j, value in enumerate(line):
                    _number_in(axes, j, i, value, 8 if few else 5)
    figure.supxlabel(picture.x, fontsize=9, color=QUIET)
    figure.supylabel(picture.y, fontsize=9, color=QUIET)
    heat.scale(figure, panels, "share that is right")
    return svg_text(figure)


def _example(results: Results, picture: Picture) -> str | None:
    """One text's matrices: for each row and head its gates, or where it looks by position alone."""
    shown: list[tuple[str, list[list[float]], list[str]]] = []
    for row in _rows(results, picture):
        for cell in results.of(picture.arm, row)[:1]:
            example = probed(cell, picture.probe).get("example", {})
            for head in example.get("heads", ()):
                if (matrix := head[picture.metric]) is not None:
                    title = f"{row}, layer {head['layer']}, head {head['head']}"
                    shown.append((title, matrix, example["tokens"]))
    if not shown:
        return None
    figure, panels = heat.panels(len(shown), size=3.4, columns=2)
    figure.suptitle(picture.title, x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    for axes, (title, matrix, tokens) in zip(panels, shown, strict=True):
        # a query has the keys up to itself
        heat.image(axes, [line + [math.nan] * (len(matrix) - len(line)) for line in matrix])
        axes.set_title(title, fontsize=9)
        if len(tokens) <= _TOKENS_SHOWN:
            axes.set_xticks(range(len(tokens)), tokens, fontsize=4, rotation=90)
            axes.set_yticks(range(len(tokens)), tokens, fontsize=4)
    figure.supxlabel(picture.x, fontsize=9, color=QUIET)
    figure.supylabel(picture.y, fontsize=9, color=QUIET)
    heat.scale(figure, panels, picture.metric.replace("_", " "))
    return svg_text(figure)


def _history(results: Results, picture: Picture) -> str | None:
    """Errors on a test set against training steps: each seed thin, their mean thick."""
    figure, axes = axes_with(picture.title, picture.x, picture.y)
    ends: dict[str, tuple[float, float]] = {}
    for row in _rows(results, picture):
        seeds = [
            {
                point["step"]: 100 * point["on"][picture.metric]
                for point in cell.result["history"]
                if picture.metric in point.get("on", {})
            }
            for cell in results.of(picture.arm, row)
            if cell.result is not None
        ]
        seeds = [seed for seed in seeds if seed]
        if not seeds:
            continue
        colour = colour_of(results, row)
        for seed in seeds:
            axes.plot(list(seed), list(seed.values()), color=colour, linewidth=0.8, alpha=0.4)
        steps = sorted(set.intersection(*(set(seed) for seed in seeds)))
        means = [statistics.fmean(seed[step] for seed in seeds) for step in steps]
        axes.plot(steps, means, linestyle=dash_of(results, row), color=colour, linewidth=2.2)
        ends[row] = (steps[-1], means[-1])
    if not ends:
        return None
    label_directly(axes, results, ends)
    return svg_text(figure)


def _number_in(axes: Any, x: int, y: int, value: float, size: int) -> None:
    colour = "#000000" if value > 0.6 else "#ffffff"
    axes.text(x, y, f"{100 * value:.0f}", ha="center", va="center", fontsize=size, color=colour)


def _number_of(key: str) -> float | None:
    """What a key stands for: "128", or "x2", which is a multiple. None if it is no number."""
    try:
        return float(key.removeprefix("x"))
    except ValueError:
        return None


_DRAW: dict[str, Callable[[Results, Picture], str | None]] = {
    "curve": _curve,
    "positions": _positions,
    "heat": _heat,
    "example": _example,
    "history": _history,
}
