"""A study of costs, read back: what was counted and timed, the paper's claims, its page.

A time is a multiple of RoPE's in the same process: the median over paired rounds, with their
quartiles in brackets, all seeds taken together. A row is faster than another if its upper quartile
is below the other's lower one, and within a bound if its quartiles are. Counts are exact.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.report import costs_plots, grid, html
from milepost.report.costs_results import Found, Spread, counted_ratio
from milepost.report.grid import Grid
from milepost.report.verdicts import Judged, told, untestable, verdict
from milepost.study.costs.study import PARTS, Claim
from milepost.study.figures import Figures
from milepost.wording import counted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def load(directory: Path) -> Found:
    """Read a study's folder as `milepost study` left it, finished or not."""
    return Found.read(directory)


def times(spread: Spread) -> str:
    """`1.23 [1.20, 1.27]`."""
    return f"{spread.median:.2f} [{spread.low:.2f}, {spread.high:.2f}]"


def grids(found: Found) -> list[Grid]:
    """The tables, ours first."""
    if not found.finished:
        return []
    heads = (
        "parameters, M of 2^20",
        "GMACs",
        "× RoPE",
        "GMACs, j ≤ i",
        "elementwise, G",
        "per pair",
    )
    length = found.finished[0][1]["counted"]["length"]
    return [
        Grid(
            f"Counted: a forward pass of the paper's model over {length} tokens",
            ("row", *heads),
            _rows(found, counted_entries, len(heads)),
        ),
        Grid(
            "Timed: multiples of RoPE's time, median and quartiles",
            ("row", *PARTS.values(), "tokens/s", "kernel"),
            _rows(found, timed_entries, len(PARTS) + 2),
        ),
        *(of_paper(figures) for figures in found.study.figures),
    ]


def _rows(
    found: Found, entries: Callable[[Found, str], tuple[str, ...]], width: int
) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (row, *(entries(found, row) if found.of(row) else (found.status(row),) * width))
        for row in found.rows
    )


def counted_entries(found: Found, row: str) -> tuple[str, ...]:
    """Of a row that has a result."""
    counted = found.counted(row) or {}
    settings = found.of(row)[0]["settings"]["counted"]["model"]
    heads = settings["layers"] * settings["heads"] * counted["batch"]
    ratio = counted_ratio(found, row, "macs")
    return (
        f"{counted['parameters'] / 2**20:.2f}",
        f"{counted['macs'] / 1e9:.2f}",
        "–" if ratio is None else f"{ratio:.3f}",
        f"{counted['seen_macs'] / 1e9:.2f}",
        f"{counted['elementwise'] / 1e9:.2f}",
        f"{counted['pair_elementwise'] / heads:.1f}",
    )


def timed_entries(found: Found, row: str) -> tuple[str, ...]:
    """Of a row that has a result."""
    results = found.of(row)
    spreads = [found.time(row, part) for part in PARTS]
    speed = statistics.median(one["measured"]["training"]["tokens_per_second"] for one in results)
    kernels = " and ".join(dict.fromkeys(one["kernels"] for one in results))
    return (*("–" if one is None else times(one) for one in spreads), f"{speed:,.0f}", kernels)


def of_paper(figures: Figures) -> Grid:
    """A table of the paper's own."""
    return Grid(
        f"The paper, {figures.source}: {figures.title}",
        ("row", *figures.columns),
        tuple(
            (row, *(f"{one:,}" if isinstance(one, int) else f"{one:.2f}" for one in values))
            for row, values in figures.rows.items()
        ),
    )


def judge(found: Found, claim: Claim) -> Judged:
    """What became of a claim."""
    if claim.measure == "none":
        return untestable(claim, claim.why_not)
    values = {row: _value(found, row, claim.measure) for row in (*claim.rows, *claim.faster)}
    missing = [row for row, value in values.items() if value is None]
    if missing:
        return untestable(claim, f"not measured: {', '.join(missing)}")
    known = {row: value for row, value in values.items() if value is not None}
    outcomes = [_outcome(claim, known, row, other) for row, other in _comparisons(claim)]
    say = times if claim.measure in PARTS else (lambda spread: f"{spread.median:.4f}")
    shown = "; ".join(f"{row} {say(value)}" for row, value in known.items())
    return Judged(claim, verdict(outcomes), shown)


def _value(found: Found, row: str, measure: str) -> Spread | None:
    """In multiples of RoPE's; a count has no spread."""
    if measure in PARTS:
        return found.time(row, measure)
    ratio = counted_ratio(found, row, measure)
    return None if ratio is None else Spread(ratio, ratio, ratio)


def _comparisons(claim: Claim) -> list[tuple[str, str]]:
    """Each row with each that it is said to be faster than, or alone."""
    return [(row, other) for row in claim.rows for other in claim.faster or ("",)]


def _outcome(claim: Claim, values: Mapping[str, Spread], row: str, other: str) -> int:
    """1 as claimed, −1 the other way round, 0 neither."""
    value = values[row]
    if other:
        base = values[other]
        return int(value.high < base.low) - int(value.low > base.high)
    least = -math.inf if claim.at_least is None else claim.at_least
    most = math.inf if claim.at_most is None else claim.at_most
    assert math.isfinite(least) or math.isfinite(most), f"{claim.text}: compare rows, or bound them"
    if least <= value.low and value.high <= most:
        return 1
    return -1 if value.high < least or value.low > most else 0


def judged(found: Found) -> list[Judged]:
    """The paper's claims, with what became of them."""
    return [judge(found, claim) for claim in found.study.claims]


def notes(found: Found) -> list[str]:
    """What a reader needs to know below the tables."""
    lines = []
    if found.finished:
        lines.append(how(found, found.finished[0][1]))
    lines += [
        "A row is faster than another if its upper quartile is below the other's lower one, and "
        "within a bound if its quartiles are.",
        *found.study.remarks,
    ]
    if len(found.machines) > 1:
        lines.append(
            f"Rows were timed on {len(found.machines)} machines: each is held against RoPE on its "
            f"own, and can be compared with the others less well."
        )
    unknown = sorted(
        {name for _, result in found.finished for name in result["counted"]["uncounted"]}
    )
    if unknown:
        lines.append(f"Nothing was counted for {', '.join(unknown)}, unknown to this release.")
    return [*lines, *found.warnings, f"Reproduce: {found.command}"]


def how(found: Found, result: Mapping[str, Any]) -> str:
    """What was timed, in a sentence or two."""
    sizes, where = result["settings"]["sizes"], result["machine"]
    model = sizes["model"]
    rounds = [
        len(part["ratios"])
        for _, finished in found.finished
        for part in finished["measured"].values()
    ]
    processor = where["device"] if where["device"] != "cpu" else where["processor"]
    return (
        f"Timed at {found.scale} scale: {counted(model['layers'], 'layer')} of {model['dim']}, "
        f"{counted(model['heads'], 'head')}, {sizes['batch']} × {sizes['length']} tokens, "
        f"{sizes['precision']}, on {processor} with {counted(where['threads'], 'thread')}; "
        f"{min(rounds)} to {counted(max(rounds), 'round')}. Attention layer and forward are "
        f"without gradients. Tokens per second are those of forward and backward, for information."
    )


def terminal(found: Found, console: Console) -> Iterable[RenderableType]:
    """The tables and their notes, to be printed one after the other."""
    return grid.terminal(grids(found), [*told(judged(found)), *notes(found)])


def markdown(found: Found) -> str:
    """The same as Markdown."""
    return grid.document(grids(found), told(judged(found)), notes(found))


def draw(found: Found) -> dict[str, str]:
    """Times and counts by row, as SVG."""
    return costs_plots.draw(found)


def page(found: Found, drawn: Mapping[str, str]) -> str:
    """The whole page."""
    return html.page_of_grids(
        found,
        grids(found),
        drawn,
        told(judged(found)),
        notes(found),
        numbers=html.details("Every cell's medians", _medians(found)),
        settings=_settings(found),
    )


def _medians(found: Found) -> str:
    """Seconds of a call and of RoPE's, cell by cell."""
    return grid.raw(
        (
            (
                cell.encoding,
                cell.seed,
                PARTS[part],
                len(one["ratios"]),
                f"{1e3 * one['seconds']:.3f}",
                f"{1e3 * one['base_seconds']:.3f}",
            )
            for cell, result in found.finished
            for part, one in result["measured"].items()
        ),
        ("row", "seed", "part", "rounds", "milliseconds", "RoPE's"),
    )


def _settings(found: Found) -> dict[str, Any]:
    """Those that all cells share, as the first has them."""
    settings = found.finished[0][1]["settings"] if found.finished else {}
    return {name: settings[name] for name in ("sizes", "counted") if settings}
