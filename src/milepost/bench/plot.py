"""A benchmark's plot as SVG: the time over SDPA's against the length, a row of panels for each op.

The left panel is forward, the right one forward + backward. Colours are head dimensions, dashes
are gates; the line at 1 is PyTorch's own attention. Drawn by matplotlib (extra `plot`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from milepost.bench.cases import HALF, NEVER, TYPICAL
from milepost.bench.results import BOTH, DIRECTIONS, FORWARD, MILEPOST, Group, Record, groups, ratio
from milepost.errors import UsageError
from milepost.report.plots import INK, MARKERS, QUIET, SERIES, STYLE, svg_text, themed

PANEL = (4.3, 2.5)
DASHES: dict[str, Any] = {TYPICAL: "solid", NEVER: (0, (4, 2)), HALF: (0, (1, 1))}
TITLES = {FORWARD: "forward", BOTH: "forward + backward"}


def draw(record: Record) -> dict[str, str]:
    """An SVG for each number of threads, and for decoding, where there is something to show."""
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError(
            'the plot needs matplotlib, which is not installed: pip install "milepost[plot]", '
            "then run `milepost bench table FILE --plot`"
        ) from error
    kinds: dict[tuple[bool, int], list[Group]] = {}
    for group in groups(record):
        kinds.setdefault((group.decode, group.threads), []).append(group)
    drawn = {}
    with matplotlib.rc_context(STYLE):
        for (decode, threads), chosen in kinds.items():
            name = f"{'decode-' if decode else ''}{threads}-thread{'s' * (threads > 1)}"
            figure = panels(chosen, DIRECTIONS[:1] if decode else DIRECTIONS)
            drawn[name] = themed(svg_text(figure), name)
    return drawn


def panels(chosen: Sequence[Group], directions: tuple[str, ...]) -> Any:
    """A figure with a row for each op, and a column for each direction."""
    from matplotlib.figure import Figure

    ops = list(dict.fromkeys(group.op for group in chosen))
    width, height = PANEL
    figure = Figure(figsize=(width * len(directions), height * len(ops)), layout="constrained")
    grid = figure.subplots(len(ops), len(directions), squeeze=False)
    for op, row in zip(ops, grid, strict=True):
        for direction, axes in zip(directions, row, strict=True):
            _panel(axes, [group for group in chosen if group.op == op], direction)
            axes.set_title(f"{op}, {TITLES[direction]}")
    lines = {
        line.get_label(): line for axes in grid.flat for line in axes.get_legend_handles_labels()[0]
    }
    if lines:
        figure.legend(
            handles=list(lines.values()),
            loc="outside upper left",
            ncols=len(directions),
            frameon=False,
            labelcolor=QUIET,
        )
    return figure


def _panel(axes: Any, chosen: list[Group], direction: str) -> None:
    head_dims = sorted({case["head_dim"] for group in chosen for case in group.cases})
    lengths = sorted({case["keys"] for group in chosen for case in group.cases})
    for group in chosen:
        typical = group.gates == TYPICAL
        gates = "" if typical else f", {group.gates} gates"
        for place, head_dim in enumerate(head_dims):
            points = {
                case["keys"]: value
                for case in group.cases
                if case["head_dim"] == head_dim
                and (value := ratio(case, direction, MILEPOST)) is not None
            }
            if not points:
                continue
            axes.plot(
                list(points),
                list(points.values()),
                color=SERIES[place % len(SERIES)],
                marker=MARKERS[place % len(MARKERS)],
                markersize=4,
                markeredgewidth=0,
                linestyle=DASHES[group.gates],
                linewidth=1.8,
                label=f"D={head_dim}{gates}",
            )
    axes.axhline(1, color=INK, linewidth=1.0)
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.minorticks_off()
    axes.set_xlabel("keys")
    axes.set_ylabel("time over SDPA's")
    axes.set_ylim(0, max(1.2, 1.05 * axes.get_ylim()[1]))
    axes.grid(axis="y", visible=True)
