"""A study of costs, read back: what was counted and timed, the paper's claims, its page.

A time is a multiple of RoPE's in the same process: the median over paired rounds, with their
quartiles in brackets, all seeds taken together. A row is faster than another if its upper quartile
is below the other's lower one, and within a bound if its quartiles are. Counts are exact.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from milepost import studies
from milepost.errors import UsageError
from milepost.report import html, plots, table
from milepost.report.results import Cell, read_cells
from milepost.study.costs.study import BASE, MEASURED, PARTS, Claim, CostStudy, Figures
from milepost.study.study import read_declaration

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500)


@dataclass(frozen=True)
class Spread:
    """A ratio's median and quartiles."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Found:
    """A study's folder: the grid it declares, and what each of its cells came to."""

    study: CostStudy
    scale: str
    rows: tuple[str, ...]
    seeds: int
    cells: tuple[Cell, ...]
    strays: int
    given: Mapping[str, Any] = field(default_factory=dict)

    def of(self, row: str) -> list[dict[str, Any]]:
        """The results of a row, one for each seed that finished."""
        return [cell.result for cell in self.cells if cell.encoding == row and cell.result]

    @property
    def finished(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.result is not None]

    @property
    def failed(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.failure is not None]

    def counted(self, row: str) -> dict[str, Any] | None:
        """What was counted of a row; the same in each seed."""
        results = self.of(row)
        return dict(results[0]["counted"]) if results else None

    def time(self, row: str, part: str) -> Spread | None:
        """A part's time as a multiple of RoPE's."""
        ratios = [one for result in self.of(row) for one in result["measured"][part]["ratios"]]
        if not ratios:
            return None
        if len(ratios) == 1:
            return Spread(ratios[0], ratios[0], ratios[0])
        low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return Spread(median, low, high)


def load(directory: Path) -> Found:
    """Read a study's folder as `milepost study` left it, finished or not."""
    declared = read_declaration(directory)
    study = studies.load(declared["study"])
    if not isinstance(study, CostStudy):
        raise UsageError(
            f"{directory} holds {study.name}, expected a study of costs: read it with "
            f"`milepost report`, which knows them all"
        )
    cells, strays = read_cells(directory, declared, MEASURED)
    return Found(
        study=study,
        scale=declared["scale"],
        rows=tuple(declared["encodings"]),
        seeds=declared["seeds"],
        cells=cells,
        strays=strays,
        given=declared.get("settings", {}),
    )


def flops(counted: Mapping[str, Any]) -> int:
    """Two for each multiply-accumulate, and the elementwise operations."""
    return int(2 * counted["macs"] + counted["elementwise"])


def counted_ratio(found: Found, row: str, measure: str) -> float | None:
    """A count as a multiple of RoPE's: "parameters", "macs" or "flops"."""
    ours, base = found.counted(row), found.counted(BASE)
    if ours is None or base is None:
        return None
    if measure == "flops":
        return flops(ours) / flops(base)
    return float(ours[measure] / base[measure])


def status(found: Found, row: str) -> str:
    """Why an entry has no number."""
    return "failed" if any(cell.encoding == row for cell in found.failed) else "not run"


def times(spread: Spread) -> str:
    """`1.23 [1.20, 1.27]`."""
    return f"{spread.median:.2f} [{spread.low:.2f}, {spread.high:.2f}]"


@dataclass(frozen=True)
class Grid:
    """A table as text: a title, the heads, and rows that begin with their name."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def grids(found: Found) -> list[Grid]:
    """The tables, ours first."""
    if not found.finished:
        return []
    heads = (
        "parameters, M",
        "GMACs",
        "× RoPE",
        "GMACs, j ≤ i",
        "elementwise, G",
        "per pair",
    )
    length = next(cell.result for cell in found.finished if cell.result)["counted"]["length"]
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
        (row, *(entries(found, row) if found.of(row) else (status(found, row),) * width))
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


Verdict = Literal["seen here", "not seen here", "contradicted here", "not testable here"]


@dataclass(frozen=True)
class Judged:
    """A claim and what was found of it."""

    claim: Claim
    verdict: Verdict
    why: str


def judge(found: Found, claim: Claim) -> Judged:
    """What became of a claim: seen if all it says holds, contradicted if most of it is reversed."""
    if claim.measure == "none":
        return Judged(claim, "not testable here", claim.why_not)
    values = {row: _value(found, row, claim.measure) for row in (*claim.rows, *claim.faster)}
    missing = [row for row, value in values.items() if value is None]
    if missing:
        return Judged(claim, "not testable here", f"not measured: {', '.join(missing)}")
    known = {row: value for row, value in values.items() if value is not None}
    outcomes = [_outcome(claim, known, row, other) for row, other in _comparisons(claim)]
    verdict: Verdict = (
        "seen here"
        if all(outcome == 1 for outcome in outcomes)
        else "contradicted here"
        if 2 * outcomes.count(-1) > len(outcomes)
        else "not seen here"
    )
    say = times if claim.measure in PARTS else (lambda spread: f"{spread.median:.4f}")
    return Judged(claim, verdict, "; ".join(f"{row} {say(value)}" for row, value in known.items()))


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
        return _below(value, values[other].low, values[other].high)
    if claim.at_most is not None:
        return _below(value, claim.at_most, claim.at_most)
    assert claim.at_least is not None, f"{claim.text}: a claim compares rows, or has a bound"
    return -_below(value, claim.at_least, claim.at_least)


def _below(value: Spread, low: float, high: float) -> int:
    return 1 if value.high <= low else -1 if value.low >= high else 0


def judged(found: Found) -> list[Judged]:
    """The paper's claims, with what became of them."""
    return [judge(found, claim) for claim in found.study.claims]


def claims(found: Found) -> list[str]:
    """A line for each of the paper's claims."""
    return [
        f"{one.verdict.capitalize()}: {one.claim.text} ({one.claim.where}): {one.why}."
        for one in judged(found)
    ]


def notes(found: Found) -> list[str]:
    """What a reader needs to know below the tables."""
    lines = []
    if found.finished:
        lines.append(how(found, found.finished[0].result or {}))
    lines += found.study.remarks
    if len(machines(found)) > 1:
        lines.append(
            f"Rows were timed on {len(machines(found))} machines: each is held against RoPE on its "
            f"own, and can be compared with the others less well."
        )
    unknown = sorted(
        {name for cell in found.finished for name in (cell.result or {})["counted"]["uncounted"]}
    )
    if unknown:
        lines.append(f"Nothing was counted for {', '.join(unknown)}, unknown to this release.")
    if found.failed:
        lines.append(
            f"{len(found.failed)} of {len(found.cells)} cells failed; the page lists the reasons."
        )
    if found.strays:
        lines.append(
            f"{found.strays} {'result' if found.strays == 1 else 'results'} in the folder belong "
            "to other settings and are left out."
        )
    return [*lines, f"Reproduce: {command(found)}"]


def machines(found: Found) -> dict[str, int]:
    """Where the cells were timed, and how many of them."""
    counts: dict[str, int] = {}
    for cell in found.finished:
        result = cell.result or {}
        facts = {**result["versions"], **result["machine"]}
        line = ", ".join(f"{name} {value}" for name, value in facts.items() if value)
        counts[line] = counts.get(line, 0) + 1
    return counts


def how(found: Found, result: Mapping[str, Any]) -> str:
    """What was timed, in a sentence or two."""
    sizes, where = result["settings"]["sizes"], result["machine"]
    model = sizes["model"]
    rounds = [
        len(part["ratios"])
        for cell in found.finished
        for part in (cell.result or {})["measured"].values()
    ]
    processor = where["device"] if where["device"] != "cpu" else where["processor"]
    return (
        f"Timed at {found.scale} scale: {model['layers']} layers of {model['dim']}, "
        f"{model['heads']} heads, {sizes['batch']} × {sizes['length']} tokens, "
        f"{sizes['precision']}, on {processor} with {where['threads']} threads; {min(rounds)} to "
        f"{max(rounds)} rounds. Attention layer and forward are without gradients. Tokens per "
        f"second are those of forward and backward, for information."
    )


def command(found: Found) -> str:
    """The command that makes these results."""
    words = ["milepost study", found.study.name, "--scale", found.scale]
    if set(found.rows) != set(found.study.encodings):
        words += ["--encodings", ",".join(found.rows)]
    if found.seeds != found.study.seeds:
        words += ["--seeds", str(found.seeds)]
    if found.given:
        words += ["--settings"]
        for name, value in found.given.items():
            text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
            words.append(quote(f"{name}={text}"))
    return " ".join(words)


def terminal(found: Found, console: Console) -> Iterable[RenderableType]:
    """The tables and their notes, to be printed one after the other."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    for grid in grids(found):
        drawn = Table(
            title=grid.title,
            title_justify="left",
            title_style="bold",
            box=box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            pad_edge=False,
        )
        drawn.add_column("", no_wrap=True)
        for head in grid.heads[1:]:
            drawn.add_column(head, justify="right")
        for name, *entries in grid.rows:
            drawn.add_row(Text(name), *(Text(entry) for entry in entries))
        yield drawn
    for line in [*claims(found), *notes(found)]:
        yield Text(line)


def markdown(found: Found) -> str:
    """The same as Markdown."""
    blocks = []
    for grid in grids(found):
        rows = [grid.heads, (":--", *(("--:",) * (len(grid.heads) - 1)))]
        rows += [tuple(table.escape(entry) for entry in row) for row in grid.rows]
        blocks.append(f"**{table.escape(grid.title)}**\n")
        blocks.append("\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n")
    if found.study.claims:
        blocks.append("**What became of the paper's claims**\n")
        blocks.append("\n".join(f"- {table.escape(line)}" for line in claims(found)) + "\n")
    blocks.append("\n".join(f"- {table.escape(line)}" for line in notes(found)))
    return "\n".join(blocks) + "\n"


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


def page(found: Found, drawn: Mapping[str, str]) -> str:
    """The whole page."""
    study = found.study
    shown = grids(found)
    figures = "".join(f"<figure>{svg}</figure>" for svg in drawn.values())
    body = [
        f"<h1>{escape(study.title)}</h1>",
        f'<p class="quiet"><code>{escape(study.name)}</code>, {escape(found.scale)} scale. '
        f'After <a href="{escape(study.link)}">{escape(study.paper)}</a>.</p>',
        f"<p>{len(found.finished)} of {len(found.cells)} cells finished, "
        f"{len(found.failed)} failed; "
        f"{sum((c.result or {})['seconds'] for c in found.finished) / 60:.1f} minutes in all.</p>",
        f'<div class="plots">{figures}</div>' if figures else "",
        "" if figures else '<p class="quiet">No cell has finished yet.</p>',
        *(_grid(grid) for grid in shown[:2]),
        "<h2>What became of the paper's claims</h2>" if study.claims else "",
        html.bullets(claims(found)),
        "<h2>How it was done</h2>",
        html.bullets(notes(found)),
        *(_grid(grid) for grid in shown[2:]),
        "<h2>Details</h2>",
        html.details("Every cell's medians", _medians(found)),
        html.details(
            "Failed cells",
            "".join(
                f"<h3>{escape(cell.encoding)}, seed {cell.seed}</h3>"
                f"<pre>{escape(str((cell.failure or {})['reason']))}</pre>"
                for cell in found.failed
            ),
        ),
        html.details("Settings", _settings(found)),
        html.details(
            "Versions and machines",
            html.bullets(f"{line} ({count} cells)" for line, count in machines(found).items()),
        ),
    ]
    return html.document(f"{study.name}, {found.scale} scale", body)


def _grid(grid: Grid) -> str:
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in grid.heads)
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f"<td>{_lines(entry)}</td>" for entry in entries)
        + "</tr>"
        for name, *entries in grid.rows
    )
    return (
        f'<h2>{escape(grid.title)}</h2><div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _lines(entry: str) -> str:
    """A number, with its quartiles below it."""
    value, bracket, rest = entry.partition(" [")
    if not bracket:
        return escape(entry)
    return f'{escape(value)}<span class="quiet">{escape(bracket.strip() + rest)}</span>'


def _medians(found: Found) -> str:
    """Seconds of a call and of RoPE's, cell by cell."""
    rows = "".join(
        f'<tr><th scope="row">{escape(cell.encoding)}</th><td>{cell.seed}</td>'
        f"<td>{escape(PARTS[part])}</td><td>{len(one['ratios'])}</td>"
        f"<td>{1e3 * one['seconds']:.3f}</td><td>{1e3 * one['base_seconds']:.3f}</td></tr>"
        for cell in found.finished
        for part, one in (cell.result or {})["measured"].items()
    )
    names = ("row", "seed", "part", "rounds", "milliseconds", "RoPE's")
    heads = "".join(f'<th scope="col">{name}</th>' for name in names)
    return (
        f'<div class="scroll"><table class="raw"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        if rows
        else ""
    )


def _settings(found: Found) -> str:
    """Those that all cells share, as the first has them."""
    if not found.finished:
        return ""
    settings = (found.finished[0].result or {})["settings"]
    shared = {name: settings[name] for name in ("sizes", "counted")}
    return f"<pre>{escape(json.dumps(shared, indent=2))}</pre>"
