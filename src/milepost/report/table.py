"""A study's tables, for the terminal (rich) and as Markdown.

An entry is `mean ± spread` over seeds with the paper's figure beside it, and says so where seeds
failed or are still missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from milepost.report import grid
from milepost.report.claims import judged
from milepost.report.grid import Grid
from milepost.report.results import (
    Entry,
    Results,
    differ,
    mean_and_spread,
    number,
    summary,
)
from milepost.report.verdicts import told
from milepost.study.study import ERROR, Arm, Column, Figure, Table, Unit
from milepost.wording import counted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table as RichTable

REVERSED = "‡"
OFF = "*"

_NAMED = 6
"""So many pairs of a column that differ from the paper are named; of more, the number is told."""


def heading(table: Table) -> str:
    """A table's title and what its numbers are."""
    return f"{table.title}: {table.counted}"


def unit(table: Table) -> str:
    """The table's unit, in brackets."""
    return f" ({table.unit.name})" if table.unit.name else ""


def figure(paper: Figure | None, unit: Unit = ERROR) -> str:
    """The paper's figure in the paper's own notation."""
    if paper is None:
        return "–"
    spread = "" if paper.spread is None else f" ({number(paper.spread, unit)})"
    return number(paper.mean, unit) + spread


def status(entry: Entry) -> str:
    """What there is to say about seeds that are missing from an entry, if anything."""
    if not entry.trained:
        return "–"
    if entry.failed:
        return f"failed ({entry.failed} of {entry.seeds})"
    if entry.refused:
        return "refused"
    if not entry.values:
        return "–" if entry.finished else "not run"
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
    return differ(summary(entry), paper, results.unit(column))


def notes(results: Results) -> list[str]:
    """What a reader needs to know below the tables, one sentence or two each."""
    study = results.study
    seeds = counted(results.seeds, "seed")
    what = "Test error in %, mean" if _only_errors(results) else "Mean"
    spread = " ± sample standard deviation over" if results.seeds > 1 else " of"
    lines = [f"{what}{spread} {seeds}, {results.scale} scale."]
    if _has_figures(results):
        of_seeds = f" (standard deviation over its {counted(study.paper_seeds, 'seed')})"
        lines[0] += (
            f" With it the paper's own figure{of_seeds * _has_spreads(results)}: {study.paper}."
        )
    if results.scale != "paper":
        lines.append(
            "The models and tasks are smaller than the paper's: compare the order of the rows "
            "with the paper's, not the size of the errors."
            if _has_figures(results)
            else "The models and tasks are small: look at the order of the rows."
        )
    lines += [line for arm in study.arms if (line := size(results, arm))]
    lines += [*study.remarks, *rule(results), *verdicts(results)]
    if any(
        _off(results, column, encoding)
        for table in study.tables
        for column in table.columns
        for encoding in results.rows
    ):
        lines.append(f"{OFF} differs from the paper's figure by more than the two spreads explain.")
    lines += results.warnings
    versions = sorted({result["versions"]["milepost"] for _, result in results.finished})
    if len(versions) > 1:
        lines.append(f"The results come from several versions: milepost {', '.join(versions)}.")
    return [*lines, f"Reproduce: {results.command}"]


def _only_errors(results: Results) -> bool:
    return all(table.unit is ERROR for table in results.study.tables)


def _has_spreads(results: Results) -> bool:
    return any(
        figure.spread is not None
        for table in results.study.tables
        for column in table.columns
        for figure in column.paper.values()
    )


def _has_figures(results: Results) -> bool:
    return any(column.paper for table in results.study.tables for column in table.columns)


def size(results: Results, arm: Arm) -> str:
    """What an arm trains and how long, by the first of its cells that has finished."""
    for cell, result in results.finished:
        if cell.arm == arm.name:
            settings = result["settings"]
            model, tested = settings["model"], result["test_sets"].get("in")
            line = (
                f"{arm.title}: {counted(settings['steps'], 'step')} of "
                f"{counted(settings['batch'] * settings['accumulate'], 'sequence')}"
            )
            if tested is not None:
                line += f" of up to {tested['length']} tokens"
            line += f"; {counted(model['layers'], 'layer')}, {counted(model['heads'], 'head')}"
            line += f", dimension {model['dim']}"
            if tested is not None:
                line += f"; {counted(tested['sequences'], 'sequence')} to test on"
            return f"{line}."
    return ""


def rule(results: Results) -> list[str]:
    """From where on a difference counts, where any is looked for."""
    if results.seeds < 2 or not (results.study.claims or results.comparisons):
        return []
    units = [table.unit for table in results.study.tables]
    leasts = dict.fromkeys(least(unit) for unit in units if unit.least or unit.relative)
    and_more = f" and more than {' or '.join(leasts)}" if leasts else ""
    return [f"A difference counts if it is more than twice its standard error{and_more}."]


def verdicts(results: Results) -> list[str]:
    """How many of the paper's differences between encodings were found, and which were not."""
    judged = [c for c in results.comparisons if c.verdict != "not measured"]
    if not judged:
        return []
    found = sum(comparison.verdict == "found" for comparison in judged)
    between = f"between {results.kind} in the paper's figures"
    lines = [
        f"The one difference {between} is {'' if found else 'not '}found here."
        if len(judged) == 1
        else f"Of {len(judged)} differences {between}, {counted(found, 'is', 'are')} found here."
    ]
    turned: dict[str, list[str]] = {}
    missing: dict[str, list[str]] = {}
    for comparison in judged:
        column, pair = comparison.column, (comparison.better, comparison.worse)
        unit = comparison.table.unit
        where = f"{comparison.table.title}, {column.title}"
        below, above = ("above", "below") if unit.higher else ("below", "above")
        if comparison.verdict == "reversed":
            paper = " and ".join(number(column.paper[name].mean, unit) for name in pair)
            here = " and ".join(
                mean_and_spread(results.entry(column, name).values, unit) for name in pair
            )
            turned.setdefault(where, []).append(
                f"{comparison.better} is {below} {comparison.worse} in the paper ({paper}) and "
                f"{above} it here ({here})."
            )
        elif comparison.verdict == "not found":
            missing.setdefault(where, []).append(f"{comparison.better} {below} {comparison.worse}")
    for where, pairs in turned.items():
        many = f"{len(pairs)} differences, of the rows that are marked."
        lines += [
            f"{REVERSED} Contradicts the paper. {where}: {told}"
            for told in (pairs if len(pairs) <= _NAMED else [many])
        ]
    for where, pairs in missing.items():
        told = "; ".join(pairs) if len(pairs) <= _NAMED else counted(len(pairs), "difference")
        lines.append(f"Not found. {where}: {told}.")
    return lines


def least(unit: Unit) -> str:
    """The least difference that counts, in words."""
    if unit.relative:
        return f"{100 * unit.relative:g} % of the smaller"
    return f"{unit.least:g} points" if unit.name == "%" else f"{unit.least:g}"


def _text(results: Results, column: Column, encoding: str, *, separator: str) -> str:
    entry = results.entry(column, encoding)
    value = ""
    if entry.values:
        shown = mean_and_spread(entry.values, results.unit(column))
        value = marks(results, column, encoding) + shown
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
    for line in lines(results):
        yield Text(line)


def lines(results: Results) -> list[str]:
    """What stands below the tables: the claims and what became of them, then the notes."""
    return [*told(judged(results)), *notes(results)]


def _rich_table(results: Results, table: Table, *, below: bool) -> RichTable:
    from rich.text import Text

    drawn = grid.frame(heading(table) + unit(table))
    for column in table.columns:
        drawn.add_column(column.title, justify="right", no_wrap=True)
        if column.paper and not below:
            drawn.add_column("paper", justify="right", style="dim", no_wrap=True)
    for encoding in results.rows:
        row = [Text(encoding)]
        if below:
            row[0].append("\n  paper", style="dim")
        for column in table.columns:
            text = _text(results, column, encoding, separator="\n").replace(" (", "\n(")
            paper = figure(column.paper.get(encoding), table.unit)
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
    tables = [
        f"**{grid.escape(heading(table))}**{unit(table)}\n\n{grid.markdown(_grid(results, table))}"
        for table in results.study.tables
    ]
    return "\n".join([*tables, grid.bullets(lines(results))]) + "\n"


def _grid(results: Results, table: Table) -> Grid:
    heads = [results.kind.removesuffix("s")]
    for column in table.columns:
        heads += [column.title, "paper"] if column.paper else [column.title]
    rows = []
    for encoding in results.rows:
        row = [encoding]
        for column in table.columns:
            row.append(_text(results, column, encoding, separator=" "))
            if column.paper:
                row.append(figure(column.paper.get(encoding), table.unit))
        rows.append(tuple(row))
    return Grid(heading(table), tuple(heads), tuple(rows))
