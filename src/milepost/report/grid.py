"""A table as text: one grid of strings for the terminal (rich), for Markdown and for a page.

What stands in brackets behind a number, its spread or its quartiles, goes below it where there is
little room.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape as html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


@dataclass(frozen=True)
class Grid:
    """A title, the heads of the columns, and rows that begin with their name.

    `left` columns hold words, and stand at the left; the others are numbers, at the right.
    """

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1


def frame(title: str) -> Table:
    """A table of rich with nothing in it but the column of the rows' names."""
    from rich import box
    from rich.table import Table

    drawn = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    drawn.add_column("", no_wrap=True)
    return drawn


def drawn(grid: Grid) -> Table:
    """For the terminal."""
    from rich.text import Text

    found = frame(grid.title)
    for place, head in enumerate(grid.heads[1:], start=1):
        found.add_column(head, justify="left" if place < grid.left else "right")
    for name, *entries in grid.rows:
        found.add_row(Text(name), *(Text(entry.replace(" (", "\n(")) for entry in entries))
    return found


def terminal(grids: Iterable[Grid], lines: Iterable[str]) -> Iterable[RenderableType]:
    """Tables and the lines below them, to be printed one after the other."""
    from rich.text import Text

    yield from map(drawn, grids)
    yield from map(Text, lines)


def escape(text: str) -> str:
    """Text as Markdown shows it; what stands between two backticks stays code."""
    parts = text.split("`")
    code = len(parts) % 2 == 1
    for place, part in enumerate(parts):
        special = r"[|]" if code and place % 2 else r"[\\|*_<>]"  # a table's rows end code at |
        parts[place] = re.sub(special, r"\\\g<0>", part)
    return ("`" if code else r"\`").join(parts)


def markdown(grid: Grid) -> str:
    """The table alone, without its title."""
    aligned = [":--" if place < grid.left else "--:" for place in range(len(grid.heads))]
    rows = [grid.heads, aligned, *([escape(entry) for entry in row] for row in grid.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def titled(title: str, content: str) -> str:
    """A block of Markdown below its title."""
    return f"**{escape(title)}**\n\n{content}"


def bullets(lines: Iterable[str]) -> str:
    """Lines as a list of Markdown."""
    return "\n".join(f"- {escape(line)}" for line in lines)


def on_page(grid: Grid) -> str:
    """For a page, below its title."""
    words = ' style="text-align:left;white-space:normal;min-width:11rem"'
    rows = (
        (
            name,
            (
                f"<td{words if place < grid.left else ''}>{_two_lines(entry)}</td>"
                for place, entry in enumerate(entries, start=1)
            ),
        )
        for name, *entries in grid.rows
    )
    return f"<h2>{html(grid.title)}</h2>{table(grid.heads, rows)}"


def _two_lines(entry: str) -> str:
    value, bracket, rest = entry.partition(" [") if " [" in entry else entry.partition(" (")
    if not bracket:
        return html(entry)
    return f'{html(value)}<span class="quiet">{html(bracket.strip() + rest)}</span>'


def raw(rows: Iterable[Sequence[object]], heads: Sequence[str] = ()) -> str:
    """For a page's details: entries as they are; nothing where there are no rows."""
    cells = [
        (str(name), [f"<td>{html(str(entry))}</td>" for entry in entries])
        for name, *entries in rows
    ]
    return table(heads, cells, ' class="raw"') if cells else ""


def table(
    heads: Sequence[str], rows: Iterable[tuple[str, Iterable[str]]], attributes: str = ""
) -> str:
    """A table of a page: each row's name, and its entries as elements of HTML."""
    titles = "".join(f'<th scope="col">{html(head)}</th>' for head in heads)
    body = "".join(
        f'<tr><th scope="row">{html(name)}</th>{"".join(entries)}</tr>' for name, entries in rows
    )
    return (
        f'<div class="scroll"><table{attributes}>'
        + (f"<thead><tr>{titles}</tr></thead>" if titles else "")
        + f"<tbody>{body}</tbody></table></div>"
    )


def document(grids: Iterable[Grid], claims: Sequence[str], notes: Iterable[str]) -> str:
    """Grids, what became of the claims if there are any, and notes, as Markdown."""
    blocks = [titled(each.title, markdown(each)) for each in grids]
    if claims:
        blocks.append(titled("What became of the paper's claims", f"{bullets(claims)}\n"))
    return "\n".join([*blocks, bullets(notes)]) + "\n"
