"""All studies on one page: how each one's claims came out, then its tables, claims and pictures.

The page is made from a folder of studies' folders, such as `studies/results`, and from nothing
else: the same results give the same bytes. Studies that have no folder there are named with what
they need.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost import studies
from milepost.errors import UsageError
from milepost.files import write_text
from milepost.report.folder import Folder
from milepost.report.grid import escape
from milepost.report.plots import plain
from milepost.report.write import Kind, kind_of
from milepost.study.study import DECLARATION, Study, read_declaration
from milepost.wording import counted

VERDICTS = ("seen here", "not seen here", "contradicted here", "not testable here")

IN_THE_TABLES = ("test-sets-", "learning-")
"""These plots are left to the studies' own pages."""

_OPENING = """\
# Results

What the studies found at the scales that were run, beside what the papers say. This page and its
pictures are made by `{command}` from the results in `{folder}`, and by nothing else.

A claim is *seen here* if every comparison that it makes comes out as the paper has it;
*contradicted here* if more than half come out the other way; *not seen here* in between; and *not
testable here* for the reason that is given. A question of a paper's readers is judged as if the
paper said that it is so. What difference counts stands below each study's tables. The `mini` scale
is small models on small tasks: what is seen there is a fact about those, and no replication. Runs
that several studies share were measured once, which is why a study may name several commits.
"""


Pictures = dict[str, list[tuple[str, str]]]
"""By the folder's name, what each shows, and its path."""


@dataclass(frozen=True)
class Entry:
    """One study's folder, read."""

    name: str
    directory: Path
    kind: Kind
    found: Folder


def write(folder: Path, page: Path) -> None:
    """Write the page, and each picture to `images/PAGE/STUDY-NAME.svg` beside it.

    Pictures there of which the page has no more use are deleted.

    Raises:
        UsageError: the folder holds no study's folder, or a file cannot be read or written.
    """
    entries = list(read(folder))
    if not entries:
        raise UsageError(
            f"{folder} holds no studies: expected folders in it with a {DECLARATION} each, as "
            f"`milepost study NAME --out {folder}/NAME-mini` writes"
        )
    images = page.parent / "images" / page.stem
    kept = set()
    drawn: Pictures = {}
    for entry in entries:
        for name, svg in entry.kind.draw(entry.found).items():
            if name.startswith(IN_THE_TABLES):
                continue
            path = images / f"{entry.directory.name}-{name}.svg"
            write_text(path, plain(svg))
            kept.add(path)
            place = os.path.relpath(path, page.parent)
            drawn.setdefault(entry.directory.name, []).append((shown(entry, name), place))
    for path in images.glob("*.svg"):
        if path not in kept:
            path.unlink()
    command = f"milepost report {folder.as_posix()} --summary {page.as_posix()}"
    write_text(page, text(entries, folder, command, drawn))


def read(folder: Path) -> Iterator[Entry]:
    """The studies in the folder, in the order in which `milepost study --list` has them."""
    found = {}
    for directory in sorted(folder.iterdir()) if folder.is_dir() else ():
        if (directory / DECLARATION).exists():
            found[read_declaration(directory)["study"], directory.name] = directory
    for (name, _), directory in sorted(found.items()):
        kind = kind_of(directory)
        yield Entry(name, directory, kind, kind.load(directory))


def text(entries: list[Entry], folder: Path, command: str, drawn: Pictures) -> str:
    """The page, as Markdown."""
    blocks = [
        _OPENING.format(command=command, folder=folder.as_posix()),
        counts(entries),
        index(entries),
    ]
    for entry in entries:
        study = studies.load(entry.name)
        blocks += [
            f"## {entry.name}: {escape(study.title)}\n",
            f"[{escape(study.paper)}]({study.link}). {ran(entry)}\n",
            entry.kind.markdown(entry.found),
            *(f"![{escape(told)}]({path})\n" for told, path in drawn.get(entry.directory.name, ())),
        ]
    absent = [name for name in studies.names() if name not in {entry.name for entry in entries}]
    if absent:
        blocks += ["## Not run here\n", "\n".join(map(_absent, absent)) + "\n"]
    return "\n".join(blocks)


def shown(entry: Entry, plot: str) -> str:
    """What a plot shows, in words."""
    study = studies.load(entry.name)
    pictures = study.pictures if isinstance(study, Study) else ()
    titles = {f"pictures-{one.name}": one.title for one in pictures}
    return f"{study.title}: {titles.get(plot, plot.replace('-', ' '))}"


def counts(entries: list[Entry]) -> str:
    """How many claims came out how, and how many questions."""
    judged = [one for entry in entries for one in entry.kind.judged(entry.found)]
    lines = []
    for asked, what, whose in ((False, "claim", "the papers"), (True, "question", "their readers")):
        verdicts = Counter(one.verdict for one in judged if one.claim.question == asked)
        told = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in VERDICTS)
        if verdicts:
            lines.append(f"Of {counted(verdicts.total(), what)} of {whose}: {told}.\n")
    return "\n".join(lines)


def index(entries: list[Entry]) -> str:
    """A line for each study: how many of its claims came out how."""
    rows = [f"| study | {' | '.join(VERDICTS)} |", "| :-- |" + " --: |" * len(VERDICTS)]
    for entry in entries:
        found = Counter(one.verdict for one in entry.kind.judged(entry.found))
        name = f"[{entry.name}: {escape(studies.load(entry.name).title)}](#{_anchor(entry.name)})"
        rows.append(f"| {name} | {' | '.join(str(found[one] or '') for one in VERDICTS)} |")
    return "\n".join(rows) + "\n"


def ran(entry: Entry) -> str:
    """How many cells, for how long, of which commits, where."""
    results = [result for _, result in entry.found.finished]
    if not results:
        return "Nothing has finished yet."
    commits = sorted(
        {str(result["versions"].get("commit", "not recorded"))[:12] for result in results}
    )
    places = sorted({_place(result["machine"]) for result in results})
    minutes = counted(round(entry.found.minutes), "minute")
    return (
        f"{counted(len(results), 'run')}, {minutes} in all, on {'; '.join(places)}; "
        f"{'commit' if len(commits) == 1 else 'commits'} {', '.join(commits)}."
    )


def _place(machine: dict[str, Any]) -> str:
    device = machine.get("device", "cpu")
    return str(machine["processor"] if device == "cpu" else device)


def _absent(name: str) -> str:
    study = studies.load(name)
    needs = f"needs {study.needs}" if study.needs else "no results yet"
    return f"- `{name}`, {escape(study.title)}: {needs}."


def _anchor(name: str) -> str:
    """What the heading's own link is called."""
    heading = f"{name}: {studies.load(name).title}".lower()
    kept = "".join(c for c in heading if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")
