"""The plots of a study of context extension: perplexity by window, passkeys by length."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from milepost.report import plots
from milepost.report.extension_results import Extended, found_keys, nats, perplexity
from milepost.study.extension.study import BASE


def draw(found: Extended) -> dict[str, str]:
    """Perplexity and passkeys by length, as SVG."""
    if not found.finished:
        return {}
    with plots.style():
        drawn = {"perplexity": _perplexity(found), "passkey": _passkeys(found)}
    return {name: plots.themed(svg, name) for name, svg in drawn.items()}


def _look(found: Extended, row: str) -> dict[str, Any]:
    """The base is grey and dashed; each other row has a colour and a marker of its own."""
    if row == BASE:
        return {"color": plots.QUIET, "linestyle": "--", "marker": "x"}
    place = [name for name in found.study.encodings if name != BASE].index(row)
    return {
        "color": plots.SERIES[place % len(plots.SERIES)],
        "marker": plots.MARKERS[place % len(plots.MARKERS)],
    }


def _perplexity(found: Extended) -> str:
    """Perplexity by window, the mean over seeds with each seed beside it."""
    figure, axes = plots.axes_with("Perplexity by window", "tokens", "perplexity of a token")
    lengths = found.lengths("perplexity")
    for row in found.rows:
        seeds = [[perplexity(nats(result, n)) for n in lengths] for result in found.of(row)]
        if not seeds:
            continue
        look = _look(found, row)
        for seed in seeds:
            axes.plot(lengths, seed, linestyle="none", **_mark(look), alpha=0.35, markersize=3)
        means = [statistics.fmean(values) for values in zip(*seeds, strict=True)]
        axes.plot(lengths, means, label=row, linewidth=1.8, markersize=5, **look)
    axes.set_xscale("log", base=2)
    # an unextended base leaves the scale beyond T, and would press the rows together
    rows = [row for row in found.rows if row != BASE and found.of(row)]
    shown = [perplexity(nats(r, n)) for row in rows for r in found.of(row) for n in lengths]
    if shown:
        axes.set_ylim(0.97 * min(shown), 1.1 * max(shown))
    _finish(axes, found, lengths)
    return plots.svg_text(figure)


def _passkeys(found: Extended) -> str:
    """The share of passkeys found by length, with intervals."""
    figure, axes = plots.axes_with("Passkeys found", "tokens of prompt and answer", "found, %")
    lengths = found.lengths("passkey")
    rows = [row for row in found.rows if found.of(row)]
    step = (lengths[-1] - lengths[0] or lengths[0]) / 100
    for place, row in enumerate(rows):
        scores = [score for n in lengths if (score := found_keys(found.of(row), n)) is not None]
        # side by side, so that intervals do not hide each other
        at = [n + (place - (len(rows) - 1) / 2) * step for n in lengths]
        shares = [100 * score.share for score in scores]
        below = [100 * (score.share - score.interval[0]) for score in scores]
        above = [100 * (score.interval[1] - score.share) for score in scores]
        axes.errorbar(
            at,
            shares,
            yerr=[[max(0.0, v) for v in below], [max(0.0, v) for v in above]],
            label=row,
            linewidth=1.5,
            elinewidth=0.9,
            markersize=5,
            clip_on=False,
            **_look(found, row),
        )
    axes.set_ylim(-3, 103)
    _finish(axes, found, lengths)
    return plots.svg_text(figure)


def _mark(look: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in look.items() if name != "linestyle"}


def _finish(axes: Any, found: Extended, lengths: Sequence[int]) -> None:
    """Ticks at what was measured, a line at T, and the key below."""
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.minorticks_off()
    axes.axvline(found.trained_length, color=plots.RULE, linewidth=1.2)
    axes.figure.set_figheight(4.2)
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.2),
        ncols=3,
        frameon=False,
        fontsize=9,
        labelcolor="linecolor",
    )
