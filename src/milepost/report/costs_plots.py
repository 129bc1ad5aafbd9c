"""The plots of a study of costs: times and counts beside RoPE's, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from milepost.report import plots
from milepost.report.costs_results import Found, flops
from milepost.study.costs.study import BASE, PARTS

TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500)


def draw(found: Found) -> dict[str, str]:
    """Times and counts by row, as SVG."""
    if not found.finished:
        return {}
    with plots.style():
        drawn = {"time": _times(found)}
        if (base := found.counted(BASE)) is not None:
            drawn["count"] = _counts(found, base)
    return {name: plots.themed(svg, name) for name, svg in drawn.items()}


def _times(found: Found) -> str:
    """Each part's median and quartiles, row by row, the fastest in training first."""
    measured = {
        row: {part: spread for part in PARTS if (spread := found.time(row, part)) is not None}
        for row in found.rows
        if found.of(row)
    }
    rows = sorted(measured, key=lambda row: measured[row]["training"].median)
    figure, axes = _by_row("Time beside RoPE's", "times RoPE's", rows)
    for place, (part, shown) in enumerate(PARTS.items()):
        spreads = [measured[row][part] for row in rows]
        medians = [spread.median for spread in spreads]
        axes.errorbar(
            medians,
            [at + 0.25 * (place - 1) for at in range(len(rows))],
            xerr=[
                [spread.median - spread.low for spread in spreads],
                [spread.high - spread.median for spread in spreads],
            ],
            label=shown,
            linestyle="none",
            marker=plots.MARKERS[place],
            color=plots.SERIES[place],
            markersize=4,
            elinewidth=0.9,
        )
    axes.set_xscale("log")
    high = max(spread.high for parts in measured.values() for spread in parts.values())
    low = min(spread.low for parts in measured.values() for spread in parts.values())
    ticks = [one for one in TICKS if 0.9 * low <= one <= 1.1 * high]
    axes.set_xticks(ticks, [f"{one:g}" for one in ticks])
    axes.minorticks_off()
    axes.axvline(1, color=plots.QUIET, linewidth=0.8)
    _key(axes)
    return plots.svg_text(figure)


def _counts(found: Found, base: Mapping[str, Any]) -> str:
    """What each row computes more than RoPE: products, and everything else."""
    counted = {row: one for row in found.rows if (one := found.counted(row)) is not None}
    rows = sorted(counted, key=lambda row: flops(counted[row]))
    figure, axes = _by_row("More FLOPs than RoPE", "% of RoPE's", rows)
    more = {
        name: [100 * times * (counted[row][name] - base[name]) / flops(base) for row in rows]
        for name, times in (("macs", 2), ("elementwise", 1))
    }
    # one after the other, unless one of them is below RoPE's
    after = [
        start if start * value > 0 else 0.0
        for start, value in zip(more["macs"], more["elementwise"], strict=True)
    ]
    look: dict[str, Any] = {"height": 0.6}
    axes.barh(range(len(rows)), more["macs"], color=plots.SERIES[0], label="products", **look)
    axes.barh(
        range(len(rows)),
        more["elementwise"],
        left=after,
        color=plots.SERIES[1],
        label="elementwise",
        **look,
    )
    axes.axvline(0, color=plots.QUIET, linewidth=0.8)
    _key(axes)
    return plots.svg_text(figure)


def _by_row(title: str, label: str, rows: Sequence[str]) -> tuple[Any, Any]:
    """A figure with a line of its own for each row, from above."""
    figure, axes = plots.axes_with(title, label, "")
    figure.set_figheight(1.6 + 0.2 * len(rows))
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelcolor=plots.INK)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    return figure, axes


def _key(axes: Any) -> None:
    """Below all, where it hides no row."""
    axes.figure.legend(
        loc="outside lower center", ncols=3, frameon=False, fontsize=8, labelcolor="linecolor"
    )
