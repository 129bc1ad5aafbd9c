"""A study's tables, for the terminal (rich) and as Markdown.

Rows are encodings, columns are test sets; an entry is `mean ± spread` over seeds in per cent with
the paper's figure beside it, and says so where seeds failed or are still missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from milepost.report.results import (
    LEAST_DIFFERENCE,
    Entry,
    Results,
    differ,
    mean_and_spread,
    percent,
    summary,
)
from milepost.studies.study import Arm, Column, Figure, Table

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table as RichTable

REVERSED = "‡"
OFF = "*"


def heading(table: Table) -> str:
    """A table's title and what its numbers are shares of."""
    return f"{table.title}: {table.counted}"


def figure(paper: Figure | None) -> str:
    """The paper's figure in the paper's own notation."""
    if paper is None:
        return "–"
    spread = "" if paper.spread is None else f" ({percent(paper.spread)})"
    return percent(paper.mean) + spread


def status(entry: Entry) -> str:
    """What there is to say about seeds that are missing from an entry, if anything."""
    if entry.failed:
        return f"failed ({entry.failed} of {entry.seeds})"
    if not entry.values:
        return "not run"
    if len(entry.values) < entry.seeds:
        return f"({len(entry.values)} of {entry.seeds} seeds)"
    return ""


def marks(results: Results, column: Column, encoding: str) -> str:
    """‡ on both sides of a reversed difference; * where the paper's scale gives another figure."""
    turned = any(
        comparison.column is column
        and comparison.verdict == "reversed"
        and encoding in (comparison.better, comparison.worse)
        for comparison in results.comparisons
    )
    return REVERSED * turned + OFF * _off(results, column, encoding)


def _off(results: Results, column: Column, encoding: str) -> bool:
    entry = results.entry(column, encoding)
    if results.scale != "paper" or entry.paper is None or len(entry.values) < 2:
        return False
    paper = entry.paper.mean, entry.paper.spread or 0.0, results.study.paper_seeds
    return differ(summary(entry), paper)


def notes(results: Results) -> list[str]:
    """What a reader needs to know below the tables, one sentence or two each."""
    study = results.study
    seeds = "1 seed" if results.seeds == 1 else f"{results.seeds} seeds"
    lines = [
        f"Test error in %, mean ± sample standard deviation over {seeds}, {results.scale} scale. "
        f"With it the paper's own figure (standard deviation over its {study.paper_seeds} "
        f"seeds): {study.paper}."
    ]
    if results.scale != "paper":
        lines.append(
            "The models and tasks are smaller than the paper's: compare the order of the rows "
            "with the paper's, not the size of the errors."
        )
    lines += [line for arm in study.arms if (line := size(results, arm))]
    lines += verdicts(results)
    if any(
        _off(results, column, encoding)
        for table in study.tables
        for column in table.columns
        for encoding in results.encodings
    ):
        lines.append(f"{OFF} differs from the paper's figure by more than the two spreads explain.")
    if results.failed:
        lines.append(
            f"{len(results.failed)} of {len(results.cells)} cells failed: run the study again to "
            "retry them; the page lists the reasons."
        )
    if results.strays:
        lines.append(
            f"{results.strays} {'result' if results.strays == 1 else 'results'} in the folder "
            "belong to other settings and are left out."
        )
    versions = sorted({result["versions"]["milepost"] for _, result in results.finished})
    if len(versions) > 1:
        lines.append(f"The results come from several versions: milepost {', '.join(versions)}.")
    lines.append(f"Reproduce: {command(results)}")
    return lines


def size(results: Results, arm: Arm) -> str:
    """What an arm trains and how long, by the first of its cells that has finished."""
    for cell, result in results.finished:
        if cell.arm == arm.name:
            settings, tested = result["settings"], result["test_sets"]["in"]
            model = settings["model"]
            return (
                f"{arm.title}: {settings['steps']} steps of "
                f"{settings['batch'] * settings['accumulate']} sequences of up to "
                f"{tested['length']} tokens; {model['layers']} layers, {model['heads']} heads, "
                f"dimension {model['dim']}; {tested['sequences']} sequences to test on."
            )
    return ""


def verdicts(results: Results) -> list[str]:
    """How many of the paper's differences between encodings were found, and which were not."""
    judged = [c for c in results.comparisons if c.verdict != "not measured"]
    if not judged:
        return []
    found = sum(comparison.verdict == "found" for comparison in judged)
    lines = [
        f"Of {len(judged)} differences between encodings in the paper's figures, {found} "
        f"{'is' if found == 1 else 'are'} found here (a difference counts from twice its standard "
        f"error and {LEAST_DIFFERENCE} points)."
    ]
    missing: dict[str, list[str]] = {}
    for comparison in judged:
        column, pair = comparison.column, (comparison.better, comparison.worse)
        where = f"{comparison.table.title}, {column.title}"
        if comparison.verdict == "reversed":
            paper = " and ".join(percent(column.paper[name].mean) for name in pair)
            here = " and ".join(
                mean_and_spread(results.entry(column, name).values) for name in pair
            )
            lines.append(
                f"{REVERSED} Contradicts the paper. {where}: {comparison.better} is below "
                f"{comparison.worse} in the paper ({paper}) and above it here ({here})."
            )
        elif comparison.verdict == "not found":
            missing.setdefault(where, []).append(f"{comparison.better} below {comparison.worse}")
    return lines + [f"Not found. {where}: {'; '.join(pairs)}." for where, pairs in missing.items()]


def command(results: Results) -> str:
    """The command that makes these results."""
    study = results.study
    words = ["milepost study", study.name, "--scale", results.scale]
    if results.encodings != study.encodings:
        words += ["--encodings", ",".join(results.encodings)]
    if results.seeds != study.seeds:
        words += ["--seeds", str(results.seeds)]
    return " ".join(words)


def _text(results: Results, column: Column, encoding: str, *, separator: str) -> str:
    entry = results.entry(column, encoding)
    value = marks(results, column, encoding) + mean_and_spread(entry.values) if entry.values else ""
    return separator.join(part for part in (value, status(entry)) if part)


def terminal(results: Results, console: Console) -> Iterable[RenderableType]:
    """The tables and their notes, to be printed one after the other.

    The paper's figure has a column beside ours; where that is too wide for the console, it stands
    below ours.
    """
    from rich.text import Text

    unlimited = console.options.update(max_width=10_000)
    for table in results.study.tables:
        beside = _rich_table(results, table, below=False)
        fits = console.measure(beside, options=unlimited).maximum <= console.width
        yield beside if fits else _rich_table(results, table, below=True)
    for line in notes(results):
        yield Text(line)


def _rich_table(results: Results, table: Table, *, below: bool) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(
        title=f"{heading(table)} (%)",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    drawn.add_column("", no_wrap=True)
    for column in table.columns:
        drawn.add_column(column.title, justify="right", no_wrap=True)
        if column.paper and not below:
            drawn.add_column("paper", justify="right", style="dim", no_wrap=True)
    for encoding in results.encodings:
        row = [Text(encoding)]
        if below:
            row[0].append("\n  paper", style="dim")
        for column in table.columns:
            text = _text(results, column, encoding, separator="\n").replace(" (", "\n(")
            paper = figure(column.paper.get(encoding))
            if below:
                value, _, rest = text.partition("\n")
                ours = Text(value)
                ours.append(f"\n{paper if column.paper else ''}", style="dim")
                ours.append(f"\n{rest}" if rest else "")
            else:
                ours = Text(text)
            row.append(ours)
            if column.paper and not below:
                row.append(Text(paper))
        drawn.add_row(*row)
    return drawn


def markdown(results: Results) -> str:
    """The same tables and notes as Markdown."""
    blocks = []
    for table in results.study.tables:
        blocks.append(f"**{escape(heading(table))}** (%)\n")
        blocks.append(_markdown_table(results, table))
    blocks.append("\n".join(f"- {escape(line)}" for line in notes(results)))
    return "\n".join(blocks) + "\n"


def _markdown_table(results: Results, table: Table) -> str:
    heads, aligned = ["encoding"], [":--"]
    for column in table.columns:
        heads += [column.title, "paper"] if column.paper else [column.title]
        aligned += ["--:"] * (2 if column.paper else 1)
    rows = [heads, aligned]
    for encoding in results.encodings:
        row = [escape(encoding)]
        for column in table.columns:
            row.append(escape(_text(results, column, encoding, separator=" ")))
            if column.paper:
                row.append(figure(column.paper.get(encoding)))
        rows.append(row)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def escape(text: str) -> str:
    """Text as Markdown shows it."""
    for character in "\\|*_<>`":
        text = text.replace(character, f"\\{character}")
    return text
