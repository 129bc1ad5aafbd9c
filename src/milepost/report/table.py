"""A study's tables, for the terminal (rich) and as Markdown.

An entry is `mean ± spread` over seeds with the paper's figure beside it, and says so where seeds
failed or are still missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from shlex import quote
from typing import TYPE_CHECKING, Any

from milepost.report.claims import judged
from milepost.report.results import (
    Entry,
    Results,
    differ,
    mean_and_spread,
    number,
    summary,
)
from milepost.study.study import ERROR, Arm, Column, Figure, Table, Unit

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table as RichTable

REVERSED = "‡"
OFF = "*"


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
    return differ(summary(entry), paper, results.unit(column))


def notes(results: Results) -> list[str]:
    """What a reader needs to know below the tables, one sentence or two each."""
    study = results.study
    seeds = "1 seed" if results.seeds == 1 else f"{results.seeds} seeds"
    what = "Test error in %, mean" if _only_errors(results) else "Mean"
    lines = [f"{what} ± sample standard deviation over {seeds}, {results.scale} scale."]
    if _has_figures(results):
        lines[0] += (
            f" With it the paper's own figure (standard deviation over its {study.paper_seeds} "
            f"seeds): {study.paper}."
        )
    if results.scale != "paper":
        lines.append(
            "The models and tasks are smaller than the paper's: compare the order of the rows "
            "with the paper's, not the size of the errors."
        )
    lines += [line for arm in study.arms if (line := size(results, arm))]
    lines += [*study.remarks, *verdicts(results)]
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


def claims(results: Results) -> list[str]:
    """A line for each of the paper's claims."""
    return [
        f"{one.verdict.capitalize()}: {one.claim.text} ({one.claim.where}): {one.why}."
        for one in judged(results)
    ]


def _only_errors(results: Results) -> bool:
    return all(table.unit is ERROR for table in results.study.tables)


def _has_figures(results: Results) -> bool:
    return any(column.paper for table in results.study.tables for column in table.columns)


def size(results: Results, arm: Arm) -> str:
    """What an arm trains and how long, by the first of its cells that has finished."""
    for cell, result in results.finished:
        if cell.arm == arm.name:
            settings = result["settings"]
            model, tested = settings["model"], result["test_sets"].get("in")
            line = (
                f"{arm.title}: {settings['steps']} steps of "
                f"{settings['batch'] * settings['accumulate']} sequences"
            )
            if tested is not None:
                line += f" of up to {tested['length']} tokens"
            line += f"; {model['layers']} layers, {model['heads']} heads, dimension {model['dim']}"
            if tested is not None:
                line += f"; {tested['sequences']} sequences to test on"
            return f"{line}."
    return ""


def verdicts(results: Results) -> list[str]:
    """How many of the paper's differences between encodings were found, and which were not."""
    judged = [c for c in results.comparisons if c.verdict != "not measured"]
    if not judged:
        return []
    found = sum(comparison.verdict == "found" for comparison in judged)
    units = dict.fromkeys(comparison.table.unit for comparison in judged)
    lines = [
        f"Of {len(judged)} differences between {results.kind} in the paper's figures, {found} "
        f"{'is' if found == 1 else 'are'} found here (a difference counts from twice its standard "
        f"error and {' or '.join(map(least, units))})."
    ]
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
            lines.append(
                f"{REVERSED} Contradicts the paper. {where}: {comparison.better} is {below} "
                f"{comparison.worse} in the paper ({paper}) and {above} it here ({here})."
            )
        elif comparison.verdict == "not found":
            missing.setdefault(where, []).append(f"{comparison.better} {below} {comparison.worse}")
    return lines + [f"Not found. {where}: {'; '.join(pairs)}." for where, pairs in missing.items()]


def least(unit: Unit) -> str:
    """The least difference that counts, in words."""
    if unit.relative:
        return f"{100 * unit.relative:g} % of the smaller"
    return f"{unit.least:g} points" if unit.name == "%" else f"{unit.least:g}"


def command(results: Results) -> str:
    """The command that makes these results."""
    study = results.study
    words = ["milepost study", study.name, "--scale", results.scale]
    if results.encodings != study.encodings:
        words += ["--encodings", ",".join(results.encodings)]
    if results.seeds != study.seeds:
        words += ["--seeds", str(results.seeds)]
    if results.given:
        words += ["--settings", *settings_as_given(results.given)]
    return " ".join(words)


def settings_as_given(given: Mapping[str, Any]) -> list[str]:
    """NAME=VALUE of each, as a shell reads them."""
    plain = {
        name: value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
        for name, value in given.items()
    }
    return [quote(f"{name}={value}") for name, value in plain.items()]


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
    for line in [*claims(results), *notes(results)]:
        yield Text(line)


def _rich_table(results: Results, table: Table, *, below: bool) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(
        title=heading(table) + unit(table),
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
    blocks = []
    for table in results.study.tables:
        blocks.append(f"**{escape(heading(table))}**{unit(table)}\n")
        blocks.append(_markdown_table(results, table))
    lines = [*claims(results), *notes(results)]
    blocks.append("\n".join(f"- {escape(line)}" for line in lines))
    return "\n".join(blocks) + "\n"


def _markdown_table(results: Results, table: Table) -> str:
    heads, aligned = [results.kind.removesuffix("s")], [":--"]
    for column in table.columns:
        heads += [column.title, "paper"] if column.paper else [column.title]
        aligned += ["--:"] * (2 if column.paper else 1)
    rows = [heads, aligned]
    for encoding in results.encodings:
        row = [escape(encoding)]
        for column in table.columns:
            row.append(escape(_text(results, column, encoding, separator=" ")))
            if column.paper:
                row.append(figure(column.paper.get(encoding), table.unit))
        rows.append(row)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def escape(text: str) -> str:
    """Text as Markdown shows it."""
    for character in "\\|*_<>`":
        text = text.replace(character, f"\\{character}")
    return text
