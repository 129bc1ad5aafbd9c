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

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.report import extension_plots, grid, html
from milepost.report.extension_results import Extended, found_keys, nats, perplexity
from milepost.report.grid import Grid
from milepost.report.verdicts import FEW_SEEDS, Judged, borne_out, told, untestable, verdict
from milepost.study.extension.study import Claim
from milepost.study.figures import Figures
from milepost.wording import counted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LEAST_NATS = 0.005
LEAST_SHARE = 0.02
NEARLY_ALL = 0.95

KINDS = {
    "encoding": "the encoding",
    "lora": "LoRA",
    "embeddings": "embeddings",
    "norms": "norms",
}


def load(directory: Path) -> Extended:
    """Read a study's folder as `milepost study` left it, finished or not."""
    return Extended.read(directory)


def perplexity_entry(found: Extended, row: str, length: int) -> str:
    """`5.21 ± 0.03 (1.651)`."""
    values = [nats(result, length) for result in found.of(row)]
    if not values:
        return found.status(row)
    said = [perplexity(value) for value in values]
    spread = f" ± {statistics.stdev(said):.2f}" if len(said) > 1 else ""
    return f"{statistics.fmean(said):.2f}{spread} ({statistics.fmean(values):.3f})"


def passkey_entry(found: Extended, row: str, length: int) -> str:
    """`87 [81, 91]`, in per cent."""
    score = found_keys(found.of(row), length)
    if score is None:
        return found.status(row)
    low, high = (100 * bound for bound in score.interval)
    return f"{100 * score.share:.0f} [{low:.0f}, {high:.0f}]"


def trained_entry(found: Extended, row: str) -> str:
    """`LoRA 12,288, embeddings 16,384, norms 448`."""
    results = found.of(row)
    if not results:
        return found.status(row)
    counts = results[0]["trained"]["parameters"]
    if not counts:
        return "nothing"
    if "host" in counts:
        return f"all of it {sum(counts.values()):,}"
    return ", ".join(f"{KINDS[kind]} {counts[kind]:,}" for kind in KINDS if kind in counts)


def multiple(found: Extended, length: int) -> str:
    """`640 = 2T`."""
    times = length / found.trained_length
    named = {0.25: "T/4", 0.5: "T/2", 1.0: "T"}.get(times, f"{times:g}T")
    return f"{length} = {named}"


def grids(found: Extended) -> list[Grid]:
    """The tables, ours first."""
    if not found.finished:
        return []

    def by_length(title: str, kind: str, entry: Callable[[Extended, str, int], str]) -> Grid:
        lengths = found.lengths(kind)
        return Grid(
            title,
            ("row", *(multiple(found, length) for length in lengths)),
            tuple((row, *(entry(found, row, length) for length in lengths)) for row in found.rows),
        )

    return [
        by_length(
            "Perplexity of a token by window, and nats in brackets", "perplexity", perplexity_entry
        ),
        by_length("Passkeys found by length of prompt and answer, %", "passkey", passkey_entry),
        Grid(
            "What each row does, and how many parameters it trains",
            ("row", "what", "trained"),
            tuple(
                (row, found.study.row(row).about, trained_entry(found, row)) for row in found.rows
            ),
            left=3,
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


def difference(found: Extended, claim: Claim, worse: str, length: int) -> int | None:
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
    return (1 if mean > 0 else -1) if abs(mean) > max(2 * error, least) else 0


def judge(found: Extended, claim: Claim) -> Judged:
    """What became of a claim."""
    if claim.measure == "none":
        return untestable(claim, claim.why_not)
    if not found.finished:
        return untestable(claim, "nothing has been measured yet")
    T = found.trained_length
    lengths = (
        [round(times * T) for times in claim.lengths] if claim.lengths else found.lengths("passkey")
    )
    if claim.measure == "nearly all":
        scores = {length: found_keys(found.of(claim.better), length) for length in lengths}
        known = {length: score for length, score in scores.items() if score is not None}
        if not known:
            return untestable(claim, f"{claim.better} was not measured")
        shown = [f"{length}: {100 * s.share:.0f} %" for length, s in known.items()]
        held = verdict(score.share >= NEARLY_ALL for score in known.values())
        return Judged(claim, held, "; ".join(shown))
    asked = [(worse, length) for worse in claim.worse for length in lengths]
    outcomes = {place: difference(found, claim, *place) for place in asked}
    known_outcomes = [outcome for outcome in outcomes.values() if outcome is not None]
    if len(known_outcomes) < len(outcomes):
        return untestable(claim, FEW_SEEDS)
    turned = [f"{worse} at {length}" for (worse, length), o in outcomes.items() if o == -1]
    why = borne_out(known_outcomes.count(1), len(outcomes))
    if turned:
        why += f", {counted(len(turned), 'goes', 'go')} the other way ({', '.join(turned)})"
    return Judged(claim, verdict(known_outcomes), why)


def judged(found: Extended) -> list[Judged]:
    """The paper's claims, with what became of them."""
    return [judge(found, claim) for claim in found.study.claims]


def notes(found: Extended) -> list[str]:
    """What a reader needs to know below the tables."""
    study = found.study
    lines = [
        f"{counted(found.seeds, 'seed')}, {found.scale} scale. Perplexity: mean ± sample standard "
        "deviation over seeds, windows that do not overlap. Passkeys: pooled over seeds and "
        "depths, with the 95 % interval (Wilson) of so many keys, which does not know of the seeds."
    ]
    if found.finished:
        lines.append(how(found.finished[0][1]))
    lines += study.remarks
    if len(bases(found)) > 0:
        lines.append(
            "Rows of the same seed extend different bases (on another machine a base is trained "
            f"anew): seed {', '.join(map(str, bases(found)))}. They are compared all the same."
        )
    few = {row: len(found.of(row)) for row in found.rows}
    fewer = [f"{row} {count}" for row, count in few.items() if count < found.seeds]
    if found.finished and fewer:
        of = counted(found.seeds, "seed")
        lines.append(f"Not every seed is there: of {of} {', '.join(fewer)}.")
    return [*lines, *found.warnings, f"Reproduce: {found.command}"]


def bases(found: Extended) -> list[int]:
    """The seeds whose rows do not all stand on one base."""
    by_seed: dict[int, set[str]] = {}
    for cell, result in found.finished:
        by_seed.setdefault(cell.seed, set()).add(result["base"])
    return sorted(seed for seed, different in by_seed.items() if len(different) > 1)


def how(result: Mapping[str, Any]) -> str:
    """The training, in a sentence or two."""
    s, T = result["settings"], result["length"]
    asked = f"{counted(len(s['depths']), 'depth')} of {counted(s['trials'], 'key')}"
    batch = counted(s["accumulate"] * (s["texts"] + s["passkeys"]), "sequence")
    base = (
        f"Base: {counted(s['layers'], 'layer')}, {counted(s['heads'], 'head')}, dimension "
        f"{s['dim']}, bytes, trained for {counted(s['base_steps'], 'step')} at T = {T}. "
        if s["checkpoint"] is None
        else f"Base: a checkpoint of T = {T}. "
    )
    return (
        f"{base}Extension: {counted(s['steps'], 'step')} of {batch} of {s['factor'] * T} tokens, "
        f"AdamW at {s['lr']:g} after a warm-up of {s['warmup']}, the same for every row. "
        f"Perplexity is of {s['test_tokens']} tokens, passkeys of {asked} at each length and seed."
    )


def terminal(found: Extended, console: Console) -> Iterable[RenderableType]:
    """The tables and their notes, to be printed one after the other."""
    return grid.terminal(grids(found), [*told(judged(found)), *notes(found)])


def markdown(found: Extended) -> str:
    """The same as Markdown."""
    return grid.document(grids(found), told(judged(found)), notes(found))


def draw(found: Extended) -> dict[str, str]:
    """Perplexity and passkeys by length, as SVG."""
    return extension_plots.draw(found)


def page(found: Extended, drawn: Mapping[str, str]) -> str:
    """The whole page."""
    return html.page_of_grids(
        found,
        grids(found),
        drawn,
        told(judged(found)),
        notes(found),
        caption="The upright line is T. Small marks are single seeds.",
        numbers=html.details("Every seed's numbers", _seeds(found)),
        settings=found.finished[0][1]["settings"] if found.finished else None,
    )


def _seeds(found: Extended) -> str:
    """Nats by window, and keys found by length and depth, seed by seed."""
    return grid.raw(
        (
            (
                row,
                seed,
                ", ".join(f"{n}: {one['nats']:.4f}" for n, one in result["perplexity"].items()),
                "; ".join(f"{n}: {_by_depth(at)}" for n, at in result["passkey"].items()),
            )
            for row in found.rows
            for seed, result in sorted(found.by_seed(row).items())
        ),
        ("row", "seed", "nats", "keys found, by depth"),
    )


def _by_depth(keys: Mapping[str, tuple[int, int]]) -> str:
    return ", ".join(f"{right}/{trials} at {depth}" for depth, (right, trials) in keys.items())
