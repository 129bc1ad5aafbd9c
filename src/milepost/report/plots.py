"""A study's plots as SVG: learning curves, error by test set, error by length.

Drawn by matplotlib (extra `plot`). Colours come out as CSS variables with a fallback, so that one
drawing suits a light and a dark page; text stays text; the same results give the same bytes.
The hues are those of Okabe and Ito, which colour-blind readers can tell apart; each encoding has
its own marker too.
"""

from __future__ import annotations

import io
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from milepost.errors import UsageError
from milepost.report.folder import Cell
from milepost.report.results import Results, cell_error
from milepost.study.study import ERROR, Arm, Table

SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c6d31")
DASHES = ("-", "--", ":", "-.")
MARKERS = ("s", "^", "o", "D", "v", "P", "X", "<", ">")

# Colours that matplotlib is told, each replaced in the SVG by what a page's style sheet may set.
INK, QUIET, RULE, _PAGE = "#010101", "#020202", "#030303", "#040404"
_THEMED = {
    INK: "currentColor",
    QUIET: "var(--quiet, #6b7078)",
    RULE: "var(--rule, #d9dce0)",
    _PAGE: "var(--page, #ffffff)",
    **{colour: f"var(--series-{i}, {colour})" for i, colour in enumerate(SERIES, start=1)},
}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "milepost",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": QUIET,
    "axes.labelsize": 9,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
}
_SIZE = (4.3, 3.1)
_AXES_HEIGHT = 2.25  # inches, of these
_NAME_HEIGHT = 0.075  # of a line's name, as a share of that
_ROOM = 14  # letters of a name that fit beside the axes
_LETTER_WIDTH = 0.085  # inches, of each further one
_SLACK = 1.2  # so much more height than many names take
_KEY_COLUMNS = 4  # at most; fewer where the names are long


def draw(results: Results) -> dict[str, dict[str, str]]:
    """Every plot that has something to show: SVG by kind of plot, and by table or arm."""
    study = results.study
    with style():
        drawn = {
            "test-sets": {table.name: _test_sets(results, table) for table in study.tables},
            "learning": {arm.name: _learning(results, arm) for arm in study.arms},
            "length": {arm.name: _lengths(results, arm) for arm in study.arms},
        }
    return {
        kind: {name: themed(svg, f"{kind}-{name}") for name, svg in plots.items() if svg}
        for kind, plots in drawn.items()
        if any(plots.values())
    }


@contextmanager
def style() -> Iterator[None]:
    """Within, matplotlib draws as all our plots are drawn."""
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError(
            "the plots and the page need matplotlib, which is not installed: "
            'pip install "milepost[plot]", then run `milepost report` on the folder'
        ) from error
    with matplotlib.rc_context(STYLE):
        yield


def _learning(results: Results, arm: Arm) -> str | None:
    """In-distribution error against training steps: each seed thin, their mean thick."""
    curves: dict[str, list[dict[int, float]]] = {}
    for encoding in results.rows:
        seeds = [
            {point["step"]: 100 * point["error"] for point in cell.result["history"]}
            for cell in results.of(arm.name, encoding)
            if cell.result is not None and cell.result["history"]
        ]
        if seeds:
            curves[encoding] = seeds
    if not curves:
        return None
    figure, axes = axes_with(arm.title, "training step", "in-distribution error, %")
    ends: dict[str, tuple[float, float]] = {}
    for encoding, seeds in curves.items():
        colour = colour_of(results, encoding)
        for seed in seeds:
            axes.plot(list(seed), list(seed.values()), color=colour, linewidth=0.8, alpha=0.4)
        steps = sorted(set.intersection(*(set(seed) for seed in seeds)))
        means = [statistics.fmean(seed[step] for seed in seeds) for step in steps]
        axes.plot(steps, means, color=colour, linewidth=2.2, solid_capstyle="round")
        if steps:
            ends[encoding] = (steps[-1], means[-1])
    _from_zero(axes)
    label_directly(axes, results, ends)
    return svg_text(figure)


def _test_sets(results: Results, table: Table) -> str | None:
    """Error on each test set: a dot for each seed, a bar at their mean, the paper's hollow."""
    entries = {
        (row, encoding): results.entry(column, encoding)
        for row, column in enumerate(table.columns)
        for encoding in results.rows
    }
    if not any(entry.values for entry in entries.values()):
        return None
    shown = len(results.rows)
    label = "error, %" if table.unit is ERROR else table.unit.name
    figure, axes = axes_with(table.title, label, "")
    figure.set_figheight(1.3 + 0.11 * len(table.columns) * max(4, shown))
    for (row, encoding), entry in entries.items():
        place = results.rows.index(encoding)
        height = row + 0.72 * ((place + 0.5) / shown - 0.5)
        colour, marker = colour_of(results, encoding), marker_of(results, encoding)
        axes.plot(
            entry.values,
            [height] * len(entry.values),
            linestyle="none",
            marker=marker,
            markersize=5,
            color=colour,
            markeredgewidth=0,
            alpha=0.55,
            clip_on=False,
        )
        if entry.mean is not None:
            axes.plot(
                [entry.mean] * 2,
                [height - 0.3 / shown, height + 0.3 / shown],
                color=colour,
                linewidth=2.4,
                clip_on=False,
            )
        if entry.paper is not None and table.unit.comparable:
            axes.plot(
                entry.paper.mean,
                height,
                marker=marker,
                markersize=8,
                markerfacecolor="none",
                markeredgecolor=colour,
                markeredgewidth=1.2,
                clip_on=False,
            )
    axes.set_yticks(range(len(table.columns)), [column.title for column in table.columns])
    axes.set_ylim(len(table.columns) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    if table.unit.factor == 100:
        axes.set_xlim(0, max(5.0, axes.get_xlim()[1]))
    for row in range(1, len(table.columns)):
        axes.axhline(row - 0.5, color=RULE, linewidth=0.8)
    _key(axes, results)
    return svg_text(figure)


def _lengths(results: Results, arm: Arm) -> str | None:
    """Error against length: the in-distribution test set and those that are only longer."""
    metric = next(
        (
            column.metric
            for table in results.study.tables
            for column in table.columns
            if column.arm == arm.name and not column.probe
        ),
        None,
    )
    if metric is None:
        return None
    curves: dict[str, dict[float, list[float]]] = {}
    for encoding in results.rows:
        points: dict[float, list[float]] = {}
        for cell in results.of(arm.name, encoding):
            for length, error in _by_length(cell, metric).items():
                points.setdefault(length, []).append(error)
        if len(points) > 1:
            curves[encoding] = dict(sorted(points.items()))
    if not curves:
        return None
    figure, axes = axes_with(arm.title, "tokens in a test sequence", "error, %")
    ends = seeds_and_means(axes, results, curves)
    _from_zero(axes)
    label_directly(axes, results, ends)
    return svg_text(figure)


def _by_length(cell: Cell, metric: str) -> dict[int, float]:
    """A cell's error in per cent by length, over the test sets that change nothing but length."""
    if cell.result is None:
        return {}
    return {
        about["length"]: 100 * error
        for name, about in cell.result["test_sets"].items()
        if name == "in" or re.fullmatch(r"length x\d+", name)
        if (error := cell_error(cell, name, metric)) is not None
    }


def seeds_and_means(
    axes: Any, results: Results, curves: Mapping[str, Mapping[float, Sequence[float]]]
) -> dict[str, tuple[float, float]]:
    """For each row a mark for every seed at every place, and a line through their means.

    Places are a power of two apart. Returns where each line ends.
    """
    ends: dict[str, tuple[float, float]] = {}
    for row, by_place in curves.items():
        colour = colour_of(results, row)
        for place, values in by_place.items():
            axes.plot(
                [place] * len(values),
                values,
                linestyle="none",
                marker=marker_of(results, row),
                markersize=4,
                markeredgewidth=0,
                color=colour,
                alpha=0.5,
            )
        means = [statistics.fmean(values) for values in by_place.values()]
        axes.plot(
            list(by_place),
            means,
            linestyle=dash_of(results, row),
            color=colour,
            linewidth=2.2,
            solid_capstyle="round",
        )
        ends[row] = (max(by_place), means[-1])
    places = sorted({place for by_place in curves.values() for place in by_place})
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.minorticks_off()
    return ends


def axes_with(title: str, x: str, y: str) -> tuple[Any, Any]:
    """A figure and its axes, with a title and labels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, pad=12)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis="y", visible=True)
    axes.tick_params(length=3)
    return figure, axes


def _from_zero(axes: Any) -> None:
    top = max(2.0, axes.get_ylim()[1])
    axes.set_ylim(-0.02 * top, top)


def colour_of(results: Results, encoding: str) -> str:
    """A row's hue; rows past the last begin again, with markers that differ."""
    return SERIES[results.rows.index(encoding) % len(SERIES)]


def dash_of(results: Results, encoding: str) -> str:
    """A row's kind of line: whole for the first eight, then broken in other ways."""
    return DASHES[results.rows.index(encoding) // len(SERIES) % len(DASHES)]


def marker_of(results: Results, encoding: str) -> str:
    """A row's marker. There are nine, and eight hues: no two of 72 rows share both."""
    return MARKERS[results.rows.index(encoding) % len(MARKERS)]


def label_directly(axes: Any, results: Results, ends: dict[str, tuple[float, float]]) -> None:
    """Name each line at the right, moved apart where names would overlap.

    More names than have room make the figure higher, long ones wider. Where one stands away from
    its line's end, by more than its own height or as the line ends early, all are joined to theirs.
    """
    from matplotlib.transforms import offset_copy

    if not ends:
        return
    low, high = axes.get_ylim()
    stretch = max(1.0, _SLACK * _NAME_HEIGHT * (len(ends) - 1))
    figure = axes.figure
    figure.set_figheight(figure.get_figheight() + (stretch - 1) * _AXES_HEIGHT)
    figure.set_figwidth(figure.get_figwidth() + max(0, max(map(len, ends)) - _ROOM) * _LETTER_WIDTH)
    gap = _NAME_HEIGHT / stretch * (high - low)
    heights = spread_apart([y for _, y in ends.values()], gap=gap, low=low, high=high)
    right = max(x for x, _ in ends.values())
    away = any(
        x < right or abs(height - y) > gap
        for (x, y), height in zip(ends.values(), heights, strict=True)
    )
    for (encoding, end), height in zip(ends.items(), heights, strict=True):
        colour = colour_of(results, encoding)
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "relpos": (0, 0.5)}
        axes.annotate(
            encoding,
            end,
            xytext=(right, height),
            textcoords=offset_copy(axes.transData, figure, x=20 if away else 6, units="points"),
            va="center",
            color=colour,
            fontweight="bold",
            fontsize=9,
            annotation_clip=False,
            arrowprops=line if away else None,
        )


def spread_apart(values: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """The values, moved up until neighbours are `gap` apart, then down where they pass `high`.

    None is below `low`, unless there is no room for all in between.
    """
    placed = list(values)
    rising = sorted(range(len(values)), key=values.__getitem__)
    floor = low
    for index in rising:
        placed[index] = max(placed[index], floor)
        floor = placed[index] + gap
    ceiling = high
    for index in reversed(rising):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - gap
    return placed


def _key(axes: Any, results: Results) -> None:
    """Names in their colours below the title, and what a hollow mark means."""
    from matplotlib.lines import Line2D

    def handle(label: str, marker: str, **style: Any) -> Any:
        return Line2D([], [], linestyle="none", marker=marker, label=label, **style)

    handles = [
        handle(
            encoding,
            marker_of(results, encoding),
            color=colour_of(results, encoding),
            markeredgewidth=0,
        )
        for encoding in results.rows
    ]
    handles.append(handle("the paper's", "o", color=QUIET, markersize=7, markerfacecolor="none"))
    for columns in range(_KEY_COLUMNS, 0, -1):
        legend = _legend(axes, handles, columns)
        axes.figure.draw_without_rendering()
        box = legend.get_window_extent()
        if box.x1 <= axes.figure.bbox.x1:
            break
    axes.set_title(axes.get_title(loc="left"), pad=10 + 72 * box.height / axes.figure.dpi)


def _legend(axes: Any, handles: list[Any], columns: int) -> Any:
    # drawn row by row, where a legend fills its columns first
    order = [i for column in range(columns) for i in range(column, len(handles), columns)]
    legend = axes.legend(
        handles=[handles[i] for i in order],
        labelcolor="linecolor",
        loc="lower left",
        bbox_to_anchor=(-0.02, 0.99),
        ncols=min(columns, len(handles)),
        frameon=False,
        fontsize=9,
        handletextpad=0.1,
        columnspacing=1.0,
        labelspacing=0.3,
        borderpad=0,
    )
    legend.set_in_layout(False)
    return legend


def svg_text(figure: Any) -> str:
    """The figure as SVG, the same each time; a rectangle is a third as long as matplotlib's."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return _RECTANGLE.sub(_shorter, text.getvalue())


_RECTANGLE = re.compile(r"M (\S+) (\S+) \nL (\S+) \2 \nL \3 (\S+) \nL \1 \4 \nz")


def _shorter(rectangle: re.Match[str]) -> str:
    left, top, right, low = (f"{float(place):.2f}" for place in rectangle.groups())
    return f"M{left} {top}H{right}V{low}H{left}z"


def plain(svg: str) -> str:
    """A themed drawing as a file of its own: whole colours, which any program reads, on white."""
    svg = re.sub(r"var\(--[\w-]+, (#\w+)\)", r"\1", svg).replace("currentColor", "#1c1f23")
    return svg.replace("<svg ", '<svg style="background: #ffffff" ', 1)


def themed(svg: str, name: str) -> str:
    """The bare `<svg>` element: themed colours, no metadata, ids that stay unique on one page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(
        r"font: ([^;']*)'DejaVu Sans'", r"font: \1system-ui, 'DejaVu Sans', sans-serif", svg
    )
    for colour, themed in _THEMED.items():
        svg = svg.replace(colour, themed)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)
