"""A study as one self-contained HTML page: no script, no font, no image from anywhere else.

The page's own security policy forbids it to load anything; a link in the text is all that leads
out. Light and dark follow the reader's preference; tables scroll where the screen is narrow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files

from milepost.report import grid, table
from milepost.report.claims import judged
from milepost.report.folder import Cell, Folder
from milepost.report.grid import Grid
from milepost.report.results import Results, mean_and_spread, percent
from milepost.report.verdicts import folded
from milepost.study.study import ERROR, Table
from milepost.wording import counted

KINDS = {
    "pictures": "What was measured",
    "test-sets": "Error by test set",
    "learning": "In-distribution error while training",
    "length": "Error by length",
}
_HOW_TO_READ = (
    "Thin lines and small marks are single seeds, thick lines and bars their means. Hollow marks "
    "are the paper's figures."
)

_EVERY_SEED = (
    "encoding",
    "seed",
    "test set",
    "tokens wrong, %",
    "sequences wrong, %",
    "last tokens wrong, %",
    "sequences",
    "tokens asked",
)


def page(results: Results, plots: Mapping[str, Mapping[str, str]], more: Iterable[str] = ()) -> str:
    """The whole page, with more at its end."""
    study = results.study
    body = [*opening(results), f"<p>{escape(_what_ran(results))}</p>"]
    for each in study.tables:
        body += [f"<h2>{escape(table.heading(each))}</h2>", _table(results, each)]
    body += [_claims(results), _notes(results), "<h2>Plots</h2>", _plots(plots), "<h2>Details</h2>"]
    body += [_seeds(results), failures(results, _label), _settings(results), machines(results)]
    body += more
    return document(f"{study.name}, {results.scale} scale", body)


def page_of_grids(
    found: Folder,
    grids: Sequence[Grid],
    drawn: Mapping[str, str],
    claims: Sequence[str],
    notes: Iterable[str],
    *,
    caption: str = "",
    numbers: str,
    settings: object = None,
) -> str:
    """The page of a study without arms: two tables come first, the others after the notes.

    Args:
        found: the study's folder.
        grids: the tables.
        drawn: the plots.
        claims: what became of them.
        notes: how it was done.
        caption: below the plots.
        numbers: what opens at a click, of all cells.
        settings: that they share, if there are any cells.
    """
    figures = "".join(f"<figure>{svg}</figure>" for svg in drawn.values())
    below = caption if figures else "No cell has finished yet."
    shared = f"<pre>{escape(json.dumps(settings, indent=2))}</pre>" if settings else ""
    body = [
        *opening(found),
        f"<p>{len(found.finished)} of {counted(len(found.cells), 'cell')} finished, "
        f"{len(found.failed)} failed; {found.minutes:.1f} minutes in all.</p>",
        f'<div class="plots">{figures}</div>' if figures else "",
        f'<p class="quiet">{escape(below)}</p>' if below else "",
        *map(grid.on_page, grids[:2]),
        "<h2>What became of the paper's claims</h2>" if claims else "",
        bullets(claims),
        "<h2>How it was done</h2>",
        bullets(notes),
        *map(grid.on_page, grids[2:]),
        "<h2>Details</h2>",
        numbers,
        failures(found, lambda cell: f"{cell.encoding}, seed {cell.seed}"),
        details("Settings", shared),
        machines(found),
    ]
    return document(f"{found.study.name}, {found.scale} scale", body)


def opening(found: Folder) -> list[str]:
    """What every page begins with: the study's title, its name and scale, the paper."""
    study = found.study
    return [
        f"<h1>{escape(study.title)}</h1>",
        f'<p class="quiet"><code>{escape(study.name)}</code>, {escape(found.scale)} scale. '
        f'After <a href="{escape(study.link)}">{escape(study.paper)}</a>.</p>',
    ]


def document(title: str, body: Iterable[str]) -> str:
    """The page around its parts; empty ones are left out."""
    style = files("milepost.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        "<!doctype html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body>\n</html>\n"
    )


def _what_ran(results: Results) -> str:
    return (
        f"{', '.join(results.rows)}; {counted(results.seeds, 'seed')}; {len(results.finished)} of "
        f"{counted(len(results.cells), 'cell')} finished, {len(results.failed)} failed; "
        f"{results.minutes:.1f} minutes of training and testing in all."
    )


def _table(results: Results, each: Table) -> str:
    rows = []
    for encoding in results.rows:
        entries = []
        for column in each.columns:
            entry = results.entry(column, encoding)
            lines = []
            if entry.values:
                marks = table.marks(results, column, encoding)
                lines.append(escape(marks + mean_and_spread(entry.values, each.unit)))
            if status := table.status(entry):
                lines.append(f'<span class="warn">{escape(status)}</span>')
            if column.paper:
                paper = escape(table.figure(entry.paper, each.unit))
                source = escape(column.source)
                lines.append(f'<span class="paper" title="{source}">paper {paper}</span>')
            entries.append(f"<td>{''.join(lines)}</td>")
        rows.append((encoding, entries))
    return grid.table([_measured(each), *(column.title for column in each.columns)], rows)


def _measured(each: Table) -> str:
    """What stands above the rows."""
    return "test error, %" if each.unit is ERROR else each.unit.name


def _claims(results: Results) -> str:
    own, line = folded(judged(results))
    lines = [
        f'<li class="{one.verdict.split()[0]}"><b>{escape(one.verdict)}</b>: '
        f"{escape(one.claim.text)} ({escape(one.claim.where)}). "
        f'<span class="quiet">{escape(one.why)}</span></li>'
        for one in own
    ]
    lines += [f'<li class="not">{escape(each)}</li>' for each in line]
    return f'<h2>Claims</h2><ul class="notes">{"".join(lines)}</ul>' if lines else ""


def _notes(results: Results) -> str:
    lines = [
        f'<li class="warn">{escape(line)}</li>'
        if line.startswith(table.REVERSED)
        else f"<li>{escape(line)}</li>"
        for line in table.notes(results)
    ]
    sources = dict.fromkeys(
        column.source for each in results.study.tables for column in each.columns if column.source
    )
    return f'<ul class="notes">{"".join(lines)}</ul>' + details(
        "Where the paper prints its figures", bullets(sources)
    )


def _plots(plots: Mapping[str, Mapping[str, str]]) -> str:
    if not plots:
        return '<p class="quiet">No cell has finished yet.</p>'
    groups = [f'<p class="quiet">{_HOW_TO_READ}</p>']
    for kind, drawn in plots.items():
        figures = "".join(f"<figure>{svg}</figure>" for svg in drawn.values())
        groups.append(f'<h3>{KINDS[kind]}</h3><div class="plots">{figures}</div>')
    return "\n".join(groups)


def _seeds(results: Results) -> str:
    """Every number that was measured: all metrics, test set by test set, seed by seed."""
    blocks = []
    for arm in results.study.arms:
        rows = [
            (
                encoding,
                cell.seed,
                test_set,
                *(percent(100 * errors[metric]) for metric in ("token", "sequence", "last")),
                errors["sequences"],
                errors["tokens"],
            )
            for encoding in results.rows
            for cell in results.of(arm.name, encoding)
            if cell.result is not None
            for test_set, errors in cell.result["errors"].items()
        ]
        if rows:
            blocks.append(f"<h3>{escape(arm.title)}</h3>{grid.raw(rows, _EVERY_SEED)}")
    return details("Every seed's errors", "".join(blocks)) + details(
        "Everything else that was measured", "".join(_probed(results))
    )


def _probed(results: Results) -> Iterator[str]:
    """What the probes found, as it stands in the results; long lists are left to the files."""
    for cell, result in results.finished:
        rows = grid.raw(
            (f"{probe} {key}", metric, _short(value))
            for probe, found in result.get("probes", {}).items()
            for key, metrics in found.items()
            for metric, value in metrics.items()
            if not isinstance(value, list | dict)
        )
        if rows:
            yield f"<details><summary>{escape(_label(cell))}</summary>{rows}</details>"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def failures(found: Folder, label: Callable[[Cell], str]) -> str:
    """The reasons of the cells that failed."""
    blocks = (
        f"<h3>{escape(label(cell))}</h3><pre>{escape(reason)}</pre>"
        for cell, reason in found.failed
    )
    return details("Failed cells", "".join(blocks))


def _settings(results: Results) -> str:
    return details(
        "Settings of every cell",
        "".join(
            f"<details><summary>{escape(_label(cell))} <code>{escape(cell.hash)}</code></summary>"
            f"<pre>{escape(json.dumps(result['settings'], indent=2))}</pre></details>"
            for cell, result in results.finished
        ),
    )


def machines(found: Folder) -> str:
    """The versions and machines that made the results."""
    lines = (f"{line} ({counted(count, 'cell')})" for line, count in found.machines.items())
    return details("Versions and machines", bullets(lines))


def details(summary: str, content: str) -> str:
    """What opens at a click; nothing where there is nothing in it."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>" if content else ""


def bullets(lines: Iterable[str]) -> str:
    """A list of lines; nothing where there are none."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _label(cell: Cell) -> str:
    return f"{cell.arm}, {cell.encoding}, seed {cell.seed}"
