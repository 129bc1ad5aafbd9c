"""A study of context extension, read back: its tables, the paper's claims, its page.

Perplexity is e to the mean nats of a token; an entry is the mean over seeds of the perplexities ±
the sample standard deviation (n − 1), with the mean nats in brackets. Passkeys are pooled over
seeds and depths: the share found, with its 95 % interval (Wilson), which knows of the keys that
were asked for and not of the seeds.

All rows of a seed extend the same base on the same data, so rows are compared seed by seed: a
difference counts if its mean over seeds is more than twice its standard error, and more than 0.005
nats or 2 points.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from milepost import studies
from milepost.errors import UsageError
from milepost.report import html, plots, table
from milepost.report.results import Cell, read_cells
from milepost.study.extension import BASE, MEASURED, Claim, Extension, Figures
from milepost.study.study import read_declaration

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from milepost.tasks.passkey import Score

LEAST_NATS = 0.005
LEAST_SHARE = 0.02
NEARLY_ALL = 0.95

KINDS = {
    "encoding": "the encoding",
    "lora": "LoRA",
    "embeddings": "embeddings",
    "norms": "norms",
}


@dataclass(frozen=True)
class Extended:
    """A study's folder: the grid it declares, and what each of its cells came to."""

    study: Extension
    scale: str
    rows: tuple[str, ...]
    seeds: int
    cells: tuple[Cell, ...]
    strays: int
    given: Mapping[str, Any] = field(default_factory=dict)

    def of(self, row: str) -> list[dict[str, Any]]:
        """The results of a row, one for each seed that finished."""
        return [cell.result for cell in self.cells if cell.encoding == row and cell.result]

    def by_seed(self, row: str) -> dict[int, dict[str, Any]]:
        """The same by seed."""
        return {c.seed: c.result for c in self.cells if c.encoding == row and c.result}

    @property
    def finished(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.result is not None]

    @property
    def failed(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.failure is not None]

    def lengths(self, kind: str) -> list[int]:
        """At which perplexity or passkeys were measured."""
        found = {int(length) for cell in self.finished for length in (cell.result or {})[kind]}
        return sorted(found)

    @property
    def trained_length(self) -> int:
        """T."""
        return int((self.finished[0].result or {})["length"])


def load(directory: Path) -> Extended:
    """Read a study's folder as `milepost study` left it, finished or not."""
    declared = read_declaration(directory)
    study = studies.load(declared["study"])
    if not isinstance(study, Extension):
        raise UsageError(
            f"{directory} holds {study.name}, expected a study of context extension: read it with "
            f"milepost.report.results.load"
        )
    cells, strays = read_cells(directory, declared, MEASURED)
    return Extended(
        study=study,
        scale=declared["scale"],
        rows=tuple(declared["encodings"]),
        seeds=declared["seeds"],
        cells=cells,
        strays=strays,
        given=declared.get("settings", {}),
    )


def nats(result: Mapping[str, Any], length: int) -> float:
    """Of a token in windows of that length."""
    return float(result["perplexity"][str(length)]["nats"])


def found_keys(results: Iterable[Mapping[str, Any]], length: int) -> Score | None:
    """The passkeys found at a length, all depths and results taken together."""
    # with it comes torch, which no other report needs
    from milepost.tasks.passkey import Score

    counts = [
        (right, trials)
        for result in results
        for right, trials in result["passkey"].get(str(length), {}).values()
    ]
    if not counts:
        return None
    return Score(sum(right for right, _ in counts), sum(trials for _, trials in counts))


def perplexity_entry(found: Extended, row: str, length: int) -> str:
    """`5.21 ± 0.03 (1.651)`."""
    values = [nats(result, length) for result in found.of(row)]
    if not values:
        return status(found, row)
    said = [math.exp(min(value, 700.0)) for value in values]
    spread = f" ± {statistics.stdev(said):.2f}" if len(said) > 1 else ""
    return f"{statistics.fmean(said):.2f}{spread} ({statistics.fmean(values):.3f})"


def passkey_entry(found: Extended, row: str, length: int) -> str:
    """`87 [81, 91]`, in per cent."""
    score = found_keys(found.of(row), length)
    if score is None:
        return status(found, row)
    low, high = (100 * bound for bound in score.interval)
    return f"{100 * score.share:.0f} [{low:.0f}, {high:.0f}]"


def trained_entry(found: Extended, row: str) -> str:
    """`LoRA 12,288, embeddings 16,384, norms 448`."""
    results = found.of(row)
    if not results:
        return status(found, row)
    counts = results[0]["trained"]["parameters"]
    if not counts:
        return "nothing"
    if "host" in counts:
        return f"all of it {sum(counts.values()):,}"
    return ", ".join(f"{KINDS[kind]} {counts[kind]:,}" for kind in KINDS if kind in counts)


def status(found: Extended, row: str) -> str:
    """Why an entry has no number."""
    return "failed" if any(cell.encoding == row for cell in found.failed) else "not run"


def multiple(found: Extended, length: int) -> str:
    """`640 = 2T`."""
    times = length / found.trained_length
    named = {0.25: "T/4", 0.5: "T/2", 1.0: "T"}.get(times, f"{times:g}T")
    return f"{length} = {named}"


@dataclass(frozen=True)
class Grid:
    """A table as text: a title, the heads, and rows that begin with their name."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: bool = False
    """Whether the entries are words, which stand at the left."""


def grids(found: Extended) -> list[Grid]:
    """The tables, ours first."""
    if not found.finished:
        return []

    def grid(title: str, kind: str, entry: Any) -> Grid:
        lengths = found.lengths(kind)
        return Grid(
            title,
            ("row", *(multiple(found, length) for length in lengths)),
            tuple((row, *(entry(found, row, length) for length in lengths)) for row in found.rows),
        )

    return [
        grid(
            "Perplexity of a token by window, and nats in brackets", "perplexity", perplexity_entry
        ),
        grid("Passkeys found by length of prompt and answer, %", "passkey", passkey_entry),
        Grid(
            "What each row does, and how many parameters it trains",
            ("row", "what", "trained"),
            tuple(
                (row, found.study.row(row).about, trained_entry(found, row)) for row in found.rows
            ),
            words=True,
        ),
        *(of_paper(figures) for figures in found.study.figures),
    ]


def of_paper(figures: Figures) -> Grid:
    """A table of the paper's own."""
    return Grid(
        f"The paper: {figures.title}",
        ("row", *figures.columns),
        tuple((row, *(f"{value:.3f}" for value in row_)) for row, row_ in figures.rows.items()),
    )


Verdict = Literal["seen here", "not seen here", "contradicted here", "not testable here"]


@dataclass(frozen=True)
class Judged:
    """A claim and what was found of it."""

    claim: Claim
    verdict: Verdict
    why: str


def difference(found: Extended, claim: Claim, worse: str, length: int) -> float | None:
    """1, 0 or −1: `better` is better than `worse`, neither, or worse; None with too few seeds."""
    one, other = found.by_seed(claim.better), found.by_seed(worse)
    apart = []
    for seed in sorted(one.keys() & other.keys()):
        if claim.measure == "perplexity":
            apart.append(nats(other[seed], length) - nats(one[seed], length))
        else:
            ours, theirs = (found_keys([each[seed]], length) for each in (one, other))
            if ours is None or theirs is None:
                return None
            apart.append(ours.share - theirs.share)
    if len(apart) < 2:
        return None
    mean, error = statistics.fmean(apart), statistics.stdev(apart) / math.sqrt(len(apart))
    least = LEAST_NATS if claim.measure == "perplexity" else LEAST_SHARE
    return math.copysign(1, mean) if abs(mean) > max(2 * error, least) else 0.0


def judge(found: Extended, claim: Claim) -> Judged:
    """What became of a claim."""
    if claim.measure == "none":
        return Judged(claim, "not testable here", claim.why_not)
    if not found.finished:
        return Judged(claim, "not testable here", "nothing has been measured yet")
    T = found.trained_length
    lengths = (
        [round(times * T) for times in claim.lengths] if claim.lengths else found.lengths("passkey")
    )
    if claim.measure == "nearly all":
        scores = {length: found_keys(found.of(claim.better), length) for length in lengths}
        known = {length: score for length, score in scores.items() if score is not None}
        if not known:
            return Judged(claim, "not testable here", f"{claim.better} was not measured")
        below = [f"{length}: {100 * s.share:.0f} %" for length, s in known.items()]
        held = all(score.share >= NEARLY_ALL for score in known.values())
        return Judged(claim, "seen here" if held else "not seen here", "; ".join(below))
    asked = [(worse, length) for worse in claim.worse for length in lengths]
    outcomes = {place: difference(found, claim, *place) for place in asked}
    if any(outcome is None for outcome in outcomes.values()):
        return Judged(claim, "not testable here", "two seeds of each of its rows are needed")
    right = sum(outcome == 1 for outcome in outcomes.values())
    turned = [f"{worse} at {length}" for (worse, length), o in outcomes.items() if o == -1]
    why = f"{right} of {len(outcomes)} comparisons bear it out"
    if turned:
        why += f", {len(turned)} go the other way ({', '.join(turned)})"
    verdict: Verdict = (
        "seen here"
        if right == len(outcomes)
        else "contradicted here"
        if len(turned) > len(outcomes) / 2
        else "not seen here"
    )
    return Judged(claim, verdict, why)


def judged(found: Extended) -> list[Judged]:
    """The paper's claims, with what became of them."""
    return [judge(found, claim) for claim in found.study.claims]


def claims(found: Extended) -> list[str]:
    """A line for each of the paper's claims."""
    return [
        f"{one.verdict.capitalize()}: {one.claim.text} ({one.claim.where}): {one.why}."
        for one in judged(found)
    ]


def notes(found: Extended) -> list[str]:
    """What a reader needs to know below the tables."""
    study = found.study
    seeds = "1 seed" if found.seeds == 1 else f"{found.seeds} seeds"
    lines = [
        f"{seeds}, {found.scale} scale. Perplexity: mean ± sample standard deviation over seeds, "
        "windows that do not overlap. Passkeys: pooled over seeds and depths, with the 95 % "
        "interval (Wilson) of so many keys, which does not know of the seeds."
    ]
    if found.finished:
        lines += [how(found, found.finished[0].result or {})]
    lines += study.remarks
    if len(bases(found)) > 0:
        lines.append(
            "Rows of the same seed extend different bases (on another machine a base is trained "
            f"anew): seed {', '.join(map(str, bases(found)))}. They are compared all the same."
        )
    few = {row: len(found.of(row)) for row in found.rows}
    fewer = [f"{row} {count}" for row, count in few.items() if count < found.seeds]
    if found.finished and fewer:
        lines.append(f"Not every seed is there: of {found.seeds} seeds {', '.join(fewer)}.")
    if found.failed:
        lines.append(
            f"{len(found.failed)} of {len(found.cells)} cells failed: run the study again to retry "
            "them; the page lists the reasons."
        )
    if found.strays:
        lines.append(
            f"{found.strays} {'result' if found.strays == 1 else 'results'} in the folder belong "
            "to other settings and are left out."
        )
    return [*lines, f"Reproduce: {command(found)}"]


def bases(found: Extended) -> list[int]:
    """The seeds whose rows do not all stand on one base."""
    by_seed: dict[int, set[str]] = {}
    for cell in found.finished:
        by_seed.setdefault(cell.seed, set()).add((cell.result or {})["base"])
    return sorted(seed for seed, different in by_seed.items() if len(different) > 1)


def how(found: Extended, result: Mapping[str, Any]) -> str:
    """The training, in a sentence or two."""
    s, T = result["settings"], result["length"]
    asked = f"{len(s['depths'])} depths of {s['trials']} keys"
    batch = s["accumulate"] * (s["texts"] + s["passkeys"])
    base = (
        f"Base: {s['layers']} layers, {s['heads']} heads, dimension {s['dim']}, bytes, trained for "
        f"{s['base_steps']} steps at T = {T}. "
        if s["checkpoint"] is None
        else f"Base: a checkpoint of T = {T}. "
    )
    return (
        f"{base}Extension: {s['steps']} steps of {batch} sequences of {s['factor'] * T} tokens, "
        f"AdamW at {s['lr']:g} after a warm-up of {s['warmup']}, the same for every row. "
        f"Perplexity is of {s['test_tokens']} tokens, passkeys of {asked} at each length and seed."
    )


def command(found: Extended) -> str:
    """The command that makes these results."""
    words = ["milepost study", found.study.name, "--scale", found.scale]
    if found.rows != found.study.encodings:
        words += ["--encodings", ",".join(row for row in found.rows if row != BASE)]
    if found.seeds != found.study.seeds:
        words += ["--seeds", str(found.seeds)]
    if found.given:
        words += ["--settings"]
        for name, value in found.given.items():
            text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
            words.append(quote(f"{name}={text}"))
    return " ".join(words)


def terminal(found: Extended, console: Console) -> Iterable[RenderableType]:
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
            drawn.add_column(head, justify="left" if grid.words else "right")
        for name, *entries in grid.rows:
            # the nats go below, where a terminal is narrow
            drawn.add_row(Text(name), *(Text(entry.replace(" (", "\n(")) for entry in entries))
        yield drawn
    for line in [*claims(found), *notes(found)]:
        yield Text(line)


def markdown(found: Extended) -> str:
    """The same as Markdown."""
    blocks = []
    for grid in grids(found):
        rows = [grid.heads, (":--", *((":--" if grid.words else "--:",) * (len(grid.heads) - 1)))]
        rows += [tuple(table.escape(entry) for entry in row) for row in grid.rows]
        blocks.append(f"**{table.escape(grid.title)}**\n")
        blocks.append("\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n")
    if found.study.claims:
        blocks.append("**What became of the paper's claims**\n")
        blocks.append("\n".join(f"- {table.escape(line)}" for line in claims(found)) + "\n")
    blocks.append("\n".join(f"- {table.escape(line)}" for line in notes(found)))
    return "\n".join(blocks) + "\n"


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
        seeds = [[math.exp(nats(result, n)) for n in lengths] for result in found.of(row)]
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
    shown = [math.exp(nats(r, n)) for row in rows for r in found.of(row) for n in lengths]
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


def page(found: Extended, drawn: Mapping[str, str]) -> str:
    """The whole page."""
    study = found.study
    shown = grids(found)
    figures = "".join(f"<figure>{svg}</figure>" for svg in drawn.values())
    ours, theirs = shown[:2], shown[2:]
    body = [
        f"<h1>{escape(study.title)}</h1>",
        f'<p class="quiet"><code>{escape(study.name)}</code>, {escape(found.scale)} scale. '
        f'After <a href="{escape(study.link)}">{escape(study.paper)}</a>.</p>',
        f"<p>{len(found.finished)} of {len(found.cells)} cells finished, "
        f"{len(found.failed)} failed; "
        f"{sum((c.result or {})['seconds'] for c in found.finished) / 60:.1f} minutes of training "
        f"and testing in all.</p>",
        f'<div class="plots">{figures}</div>' if figures else "",
        '<p class="quiet">The upright line is T. Small marks are single seeds.</p>'
        if figures
        else '<p class="quiet">No cell has finished yet.</p>',
        *(_grid(grid) for grid in ours),
        "<h2>What became of the paper's claims</h2>" if study.claims else "",
        html.bullets(claims(found)),
        "<h2>How it was done</h2>",
        html.bullets(notes(found)),
        *(_grid(grid) for grid in theirs),
        "<h2>Details</h2>",
        html.details("Every seed's numbers", _seeds(found)),
        html.details(
            "Failed cells",
            "".join(
                f"<h3>{escape(cell.encoding)}, seed {cell.seed}</h3>"
                f"<pre>{escape(str((cell.failure or {})['reason']))}</pre>"
                for cell in found.failed
            ),
        ),
        html.details("Settings", _settings(found)),
        html.details("Versions and machines", _versions(found)),
    ]
    return html.document(f"{study.name}, {found.scale} scale", body)


def _grid(grid: Grid) -> str:
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in grid.heads)
    style = ' style="text-align:left;white-space:normal;min-width:11rem"' if grid.words else ""
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f"<td{style}>{_lines(entry)}</td>" for entry in entries)
        + "</tr>"
        for name, *entries in grid.rows
    )
    return (
        f'<h2>{escape(grid.title)}</h2><div class="scroll"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _lines(entry: str) -> str:
    """A number, with what stands in brackets below it."""
    value, bracket, rest = entry.partition(" [") if " [" in entry else entry.partition(" (")
    if not bracket:
        return escape(entry)
    return f'{escape(value)}<span class="quiet">{escape(bracket.strip() + rest)}</span>'


def _seeds(found: Extended) -> str:
    """Nats by window, and keys found by length and depth, seed by seed."""
    rows = []
    for cell in sorted(
        found.finished, key=lambda cell: (found.rows.index(cell.encoding), cell.seed)
    ):
        result = cell.result or {}
        said = ", ".join(
            f"{length}: {one['nats']:.4f}" for length, one in result["perplexity"].items()
        )
        asked = "; ".join(
            f"{length}: "
            + ", ".join(f"{right}/{trials} at {depth}" for depth, (right, trials) in at.items())
            for length, at in result["passkey"].items()
        )
        rows.append(
            f'<tr><th scope="row">{escape(cell.encoding)}</th><td>{cell.seed}</td>'
            f"<td>{escape(said)}</td><td>{escape(asked)}</td></tr>"
        )
    heads = "".join(
        f'<th scope="col">{head}</th>' for head in ("row", "seed", "nats", "keys found, by depth")
    )
    return (
        f'<div class="scroll"><table class="raw"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _settings(found: Extended) -> str:
    """The settings that all cells share, as the first has them."""
    if not found.finished:
        return ""
    return (
        f"<pre>{escape(json.dumps((found.finished[0].result or {})['settings'], indent=2))}</pre>"
    )


def _versions(found: Extended) -> str:
    facts: dict[str, int] = {}
    for cell in found.finished:
        result = cell.result or {}
        machine = {**result["versions"], **result["machine"]}
        line = ", ".join(f"{name} {value}" for name, value in machine.items() if value)
        facts[line] = facts.get(line, 0) + 1
    return html.bullets(f"{line} ({count} cells)" for line, count in facts.items())
