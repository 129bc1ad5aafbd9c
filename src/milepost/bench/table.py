"""A benchmark's tables, for the terminal (rich) and as Markdown.

First the figures that are quoted, a row for each op, gates and number of threads; then, unless
only these are wanted, a table for each of them, with a row for each head_dim and length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milepost.bench.results import (
    BOTH,
    DIRECTIONS,
    FORWARD,
    MILEPOST,
    SDPA,
    Figure,
    Group,
    Record,
    failures,
    figure,
    groups,
    growth,
    memory_of,
    ratio,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

NOTHING = "–"
SHORT = {FORWARD: "fwd", BOTH: "fwd+bwd"}
PLAIN = "plain"
# from this load on, other processes have a part in the figures
BUSY = 0.5
# contenders whose own ratio to SDPA is shown, in this order, where they took part
OTHERS = ("listing", "x-transformers", "reference")


@dataclass(frozen=True)
class Sheet:
    """A table of words; the first `left` columns are set flush left."""

    title: str
    heads: list[str]
    rows: list[list[str]]
    left: int = 0


def times(value: float | None) -> str:
    """A ratio with three digits: 0.87, 12.3, 140."""
    if value is None:
        return NOTHING
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def milliseconds(seconds: float | None) -> str:
    """Seconds as milliseconds with three digits."""
    return NOTHING if seconds is None else times(1000 * seconds)


def mebibytes(size: float | None) -> str:
    """Bytes as MiB with three digits."""
    return NOTHING if size is None else times(size / 2**20)


def spread(found: Figure | None) -> str:
    """A median with the ends that it lies between."""
    if found is None:
        return NOTHING
    return f"{times(found.median)} ({times(found.lowest)} to {times(found.highest)})"


def cells(group: Group) -> int:
    """How many cases of a table were timed."""
    found = figure(group, FORWARD)
    return 0 if found is None else found.cases


def summary(record: Record) -> Sheet:
    """The figures that are quoted."""
    rows = [
        [
            group.op + (" (decoding)" if group.decode else ""),
            NOTHING if group.alone else group.gates,
            str(group.threads),
            spread(figure(group, FORWARD)),
            spread(figure(group, BOTH)),
            spread(figure(group, FORWARD, to=PLAIN)),
            spread(figure(group, BOTH, to=PLAIN)),
            str(cells(group)),
        ]
        for group in groups(record)
    ]
    heads = ["op", "gates", "threads", "fwd / SDPA", "fwd+bwd / SDPA"]
    heads += ["fwd / plain", "fwd+bwd / plain", "cells"]
    return Sheet(
        "Time over that of another: median over the cells (lowest to highest)", heads, rows, 2
    )


def details(record: Record, group: Group) -> Sheet:
    """Every cell of an op, its gates and a number of threads."""
    directions = DIRECTIONS[:1] if group.decode else DIRECTIONS
    others = [
        name
        for name in OTHERS
        if any(ratio(case, FORWARD, name) is not None for case in group.cases)
    ]
    weighed = any(memory_of(record, case, MILEPOST) is not None for case in group.cases)
    heads = ["D", "T"]
    for direction in directions:
        short = SHORT[direction]
        heads += [f"{short}, ms", f"{short} / SDPA", f"{short} / plain"]
        heads += [f"{name} {short} / SDPA" for name in others]
    if weighed:
        heads += ["memory, MiB", "SDPA's, MiB"]
        heads += [f"{name}'s, MiB" for name in others]
    rows = []
    for case in group.cases:
        row = [str(case["head_dim"]), str(case["keys"])]
        for direction in directions:
            own = case["directions"].get(direction, {}).get(MILEPOST)
            row.append(milliseconds(None if own is None else own["median"]))
            row.append(times(ratio(case, direction, MILEPOST)))
            row.append(times(ratio(case, direction, MILEPOST, PLAIN)))
            row += [times(ratio(case, direction, name)) for name in others]
        if weighed:
            for name in (MILEPOST, SDPA, *others):
                entry = memory_of(record, case, name)
                row.append(mebibytes(None if entry is None else entry["bytes"]))
        rows.append(row)
    return Sheet(group.title, heads, rows)


def kept(record: Record) -> Sheet:
    """Memory beside outputs and gradients, and how it grows."""
    rows = [
        [
            one.op,
            one.contender,
            str(one.head_dim),
            str(one.keys),
            f"{one.per_token:,.0f}",
            NOTHING if one.power is None else f"T^{one.power:.1f}",
        ]
        for one in growth(record)
    ]
    heads = ["op", "contender", "D", "T", "bytes per token", "grows as"]
    return Sheet("Memory of forward + backward beside its outputs and gradients", heads, rows, 2)


def sheets(record: Record, *, only_summary: bool = False) -> Iterator[Sheet]:
    """The tables that have something to show."""
    if record["cases"]:
        yield summary(record)
    if only_summary:
        return
    for group in groups(record):
        yield details(record, group)
    if record["memory"]:
        yield kept(record)


def notes(record: Record) -> list[str]:
    """What a reader needs to know below the tables, one sentence or two each."""
    arguments, machine, versions = record["arguments"], record["machine"], record["versions"]
    isa = f", {record['isa']} kernels" if record["isa"] else f", {arguments['backend']} backend"
    lines = [
        f"{machine['processor']}, {machine['cores']} cores{isa}; PyTorch {versions['torch']} "
        f"({machine['sdpa_capability']}), milepost {versions['milepost']}"
        f"{_commit(record)}, Python {versions['python']}; {record['date'][:10]}.",
        f"{arguments['dtype']}, causal, batch {arguments['batch']}, {arguments['heads']} heads; "
        f"at most {arguments['rounds']} rounds or about {arguments['seconds']:g} s for each cell "
        "and direction.",
        "A ratio is the median over rounds of two times of the same round; below 1 is faster.",
        "SDPA is PyTorch's attention, plain is milepost's without an encoding, listing is the CoPE "
        "paper's code; what the gates are, and how all is measured: docs/benchmarks.md.",
    ]
    if machine["load"] >= BUSY:
        lines.append(
            f"The machine was busy when the run began: {machine['load']:.1f} processes at work. "
            "Measure again when it is idle."
        )
    if not record["finished"]:
        lines.append("The run was stopped: what is missing was not measured.")
    lines += [f"Not measured. {line}" for line in failures(record)]
    for name, reason in _left_out(record).items():
        lines.append(f"Left out. {name}: {reason}.")
    return lines


def _commit(record: Record) -> str:
    commit = record["source"]["commit"]
    if commit is None:
        return ""
    return f" at {commit[:10]}" + " with changes" * bool(record["source"]["dirty"])


def _left_out(record: Record) -> dict[str, str]:
    """Of each contender that was left out somewhere, where first, and why."""
    reasons: dict[str, str] = {}
    for case in record["cases"]:
        for name, reason in case["left_out"].items():
            if name not in reasons:
                reasons[name] = f"{reason} (first: {case['label']})"
    return reasons


def terminal(record: Record, *, only_summary: bool = False) -> Iterator[RenderableType]:
    """The tables and their notes, to be printed one after the other."""
    from rich.text import Text

    for sheet in sheets(record, only_summary=only_summary):
        yield from drawn(sheet)
    for line in notes(record):
        yield Text(line)


def drawn(sheet: Sheet) -> Iterator[RenderableType]:
    """A table and its title."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # not the table's own title, which would be broken where the table is narrow
    yield Text(sheet.title, style="bold")
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 2, 0, 0),
        pad_edge=False,
    )
    for index, head in enumerate(sheet.heads):
        named = index < sheet.left  # names that are cut off may be the same
        table.add_column(
            head, justify="left" if named else "right", overflow="fold" if named else "ellipsis"
        )
    for row in sheet.rows:
        table.add_row(*map(Text, row))
    yield table


def markdown(record: Record, *, only_summary: bool = False) -> str:
    """The same tables and notes as Markdown."""
    blocks = [sheet_as_markdown(sheet) for sheet in sheets(record, only_summary=only_summary)]
    return "\n".join([*blocks, bullets(notes(record))])


def bullets(lines: Sequence[str]) -> str:
    """Lines as a list in Markdown."""
    return "".join(f"- {_escape(line)}\n" for line in lines)


def sheet_as_markdown(sheet: Sheet) -> str:
    """A table and its title in Markdown."""
    aligned = [":--" if i < sheet.left else "--:" for i in range(len(sheet.heads))]
    rows: Sequence[Sequence[str]] = [
        [_escape(head) for head in sheet.heads],
        aligned,
        *([_escape(word) for word in row] for row in sheet.rows),
    ]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"**{_escape(sheet.title)}**\n\n{table}"


def _escape(text: str) -> str:
    for character in "\\|*_<>`":
        text = text.replace(character, f"\\{character}")
    return text
