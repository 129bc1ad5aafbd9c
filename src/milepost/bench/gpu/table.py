"""A GPU benchmark's tables: for the terminal (rich) and as Markdown; and its plot as SVG.

First the figures that are quoted; then each op's cells, decoding, memory, and the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from milepost.bench import check
from milepost.bench.contenders import MILEPOST, PLAIN, SDPA
from milepost.bench.gpu.cells import BACKWARD
from milepost.bench.gpu.results import Group, failures, groups, rate
from milepost.bench.gpu.run import GRAPH
from milepost.bench.results import BOTH, FORWARD, Record, figure, ratio
from milepost.bench.table import (
    NOTHING,
    Sheet,
    bullets,
    drawn,
    mebibytes,
    milliseconds,
    sheet_as_markdown,
    spread,
    times,
)
from milepost.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

SHORT = {FORWARD: "fwd", BACKWARD: "bwd", BOTH: "fwd+bwd"}
MOST_LINES = 12


def summary(record: Record) -> Sheet:
    """The figures that are quoted: a row for each op and gates."""
    rows = []
    for group in [group for group in groups(record) if not group.decode]:
        own = figure(group, FORWARD)
        rows.append(
            [
                group.op + mark(group),
                NOTHING if group.alone else group.gates,
                *(spread(figure(group, one)) for one in (FORWARD, BACKWARD, BOTH)),
                *(spread(figure(group, one, to=PLAIN)) for one in (FORWARD, BOTH)),
                str(0 if own is None else own.cases),
            ]
        )
    heads = ["op", "gates", "fwd / SDPA", "bwd / SDPA", "fwd+bwd / SDPA"]
    heads += ["fwd / plain", "fwd+bwd / plain", "cells"]
    return Sheet(
        "Time over that of another: median over the cells (lowest to highest)", heads, rows, 2
    )


def mark(group: Group) -> str:
    """A sign for an op that was not right."""
    return " ‡" if any(case["wrong"] for case in group.cases) else ""


def details(record: Record, group: Group) -> Sheet:
    """Every cell of an op and its gates."""
    ceiling = record["ceilings"].get("flops")
    others = sorted(
        {
            name
            for case in group.cases
            for taken in case["directions"].values()
            for name in taken
            if name not in (MILEPOST, SDPA, PLAIN)
        }
    )
    heads = ["D", "T", "B"]
    for direction in (FORWARD, BACKWARD):
        short = SHORT[direction]
        heads += [f"{short}, ms", "TFLOP/s", "of the ceiling", f"{short} / SDPA"]
        heads += [f"{short} / plain"] if group.op != "softmax" else []
    heads += ["fwd+bwd / SDPA", "SDPA is"]
    heads += [f"{name} {SHORT[one]} / SDPA" for name in others for one in (FORWARD, BOTH)]
    rows = []
    for case in group.cases:
        row = [str(case[name]) for name in ("head_dim", "keys", "batch")]
        for direction in (FORWARD, BACKWARD):
            own = case["directions"].get(direction, {}).get(MILEPOST)
            flops = rate(case, direction, MILEPOST)
            row.append(milliseconds(None if own is None else own["median"]))
            row.append(NOTHING if flops is None else f"{flops / 1e12:.0f}")
            row.append(NOTHING if not (flops and ceiling) else f"{100 * flops / ceiling:.0f} %")
            row.append(times(ratio(case, direction, MILEPOST)))
            if group.op != "softmax":
                row.append(times(ratio(case, direction, MILEPOST, PLAIN)))
        chosen = [(case["sdpa"].get(one) or {}).get("chosen") for one in (FORWARD, BOTH)]
        row += [times(ratio(case, BOTH, MILEPOST)), " / ".join(map(short_backend, chosen))]
        row += [times(ratio(case, one, name)) for name in others for one in (FORWARD, BOTH)]
        rows.append(row)
    return Sheet(group.title + mark(group), heads, rows)


def short_backend(name: str | None) -> str:
    """PyTorch's name for a backend, in small."""
    return NOTHING if name is None else name.removesuffix("_ATTENTION").lower()


def decoding(record: Record) -> Sheet:
    """One query against a cache, as it is called and as a CUDA graph."""
    rows = []
    for group in [group for group in groups(record) if group.decode]:
        for case in group.cases:
            row = [group.op + mark(group), NOTHING if group.alone else group.gates]
            row += [str(case[name]) for name in ("head_dim", "keys", "batch")]
            for direction in (FORWARD, GRAPH):
                for name in (MILEPOST, SDPA):
                    one = case["directions"].get(direction, {}).get(name)
                    row.append(NOTHING if one is None else f"{case['batch'] / one['median']:,.0f}")
                row.append(times(ratio(case, direction, MILEPOST)))
            rows.append(row)
    heads = ["op", "gates", "D", "cache", "B", "tokens/s", "SDPA's", "time / SDPA"]
    heads += ["graph: tokens/s", "SDPA's", "time / SDPA"]
    return Sheet("Decoding, one layer: tokens per second", heads, rows, 2)


def memory(record: Record) -> Sheet:
    """The peaks of forward + backward."""
    rows = []
    for entry in record["memory"]:
        beside = entry["bytes"] - entry["results"] if "bytes" in entry else None
        rows.append(
            [
                entry["op"],
                entry["contender"],
                *(str(entry[name]) for name in ("head_dim", "keys", "batch")),
                mebibytes(entry.get("bytes")),
                mebibytes(beside),
                entry.get("left_out", "")[:60],
            ]
        )
    heads = ["op", "contender", "D", "T", "B", "peak, MiB", "beside its results, MiB", "left out"]
    return Sheet("Memory of forward + backward", heads, rows, 2)


def models(record: Record) -> Sheet:
    """Tokens per second in training."""
    rows = []
    for entry in record["models"]:
        tokens = entry["batch"] * entry["keys"]
        own, sdpa = (entry["seconds"].get(name) for name in (MILEPOST, SDPA))
        rows.append(
            [
                entry["encoding"],
                entry["backend"],
                str(entry["keys"]),
                str(entry["batch"]),
                *(NOTHING if x is None else f"{tokens / x['median']:,.0f}" for x in (own, sdpa)),
                times(None if own is None else own["ratio"]),
            ]
        )
    heads = ["encoding", "backend", "T", "B", "tokens/s", "none, by SDPA", "time / SDPA"]
    return Sheet("Training a 124M model: tokens per second", heads, rows, 2)


def sheets(record: Record, *, only_summary: bool = False, cells: bool = True) -> Iterator[Sheet]:
    """The tables that have something to show, without each op's `cells` if need be."""
    if any(not case["decode"] for case in record["cases"]):
        yield summary(record)
    if only_summary:
        return
    for group in groups(record):
        if cells and not group.decode:
            yield details(record, group)
    for sheet in (decoding(record), memory(record), models(record)):
        if sheet.rows:
            yield sheet


def notes(record: Record) -> list[str]:
    """What a reader needs to know below the tables, one sentence or two each."""
    machine, versions, arguments = record["machine"], record["versions"], record["arguments"]
    commit = record["source"]["commit"]
    at = (
        "" if commit is None else f" at {commit[:10]}" + " with changes" * record["source"]["dirty"]
    )
    lines = [
        f"{machine['gpu']}, {machine['multiprocessors']} multiprocessors, driver "
        f"{machine.get('driver_version') or 'unknown'}; CUDA {versions['cuda']}, PyTorch "
        f"{versions['torch']}, Triton {versions['triton']}, milepost {versions['milepost']}{at}; "
        f"{record['date'][:10]}.",
        f"{arguments['dtype']}, causal; at most {arguments['rounds']} rounds for each cell and "
        "direction, of as many calls as take "
        f"{1000 * arguments['least_seconds']:.0f} ms together.",
        "A ratio is the median over rounds of two times of the same round; below 1 is faster. SDPA "
        "is the fastest of PyTorch's backends in that cell and direction, plain is milepost's "
        "without an encoding.",
    ]
    if "flops" in record["ceilings"]:
        lines.append(
            f"TFLOP/s are of the products that plain attention needs; the ceiling is that of one "
            f"large product, {record['ceilings']['flops'] / 1e12:.0f} TFLOP/s. Kernels that leave "
            "weightless pairs out do fewer, and may pass it."
        )
    if any(case["wrong"] for case in record["cases"]):
        lines.append("‡ The kernel was not right: its times are those of something else.")
    lines += [
        f"{one['contender']} computes something else than {one['op']}: {one['reason']}."
        for one in record["checks"]
        if one["optional"] and one["verdict"] == check.WRONG
    ]
    differing = [one["label"] for one in record["checks"] if one["differs"]]
    if differing:
        lines.append(f"A second run gave other bits in {len(differing)} checks: {differing[0]} …")
    lines += first_of([f"Failed. {line}" for line in failures(record)], "failures")
    lines += first_of([f"Not reached. {line}" for line in record["not_reached"]], "steps")
    if not record["finished"]:
        lines.append("The run was stopped: what is missing was not measured.")
    for name, why in left_out(record).items():
        lines.append(f"Left out. {name}: {why}.")
    return lines


def first_of(lines: list[str], what: str) -> list[str]:
    """The first lines, and how many more there are."""
    more = len(lines) - MOST_LINES
    return lines if more <= 0 else [*lines[:MOST_LINES], f"… and {more} more {what}."]


def left_out(record: Record) -> dict[str, str]:
    """Of each contender that was left out somewhere, where first, and why."""
    reasons: dict[str, str] = {}
    for case in record["cases"]:
        for name, why in case["left_out"].items():
            reasons.setdefault(name, f"{why} (first: {case['label']})")
    return reasons


def terminal(
    record: Record, *, only_summary: bool = False, cells: bool = True
) -> Iterator[RenderableType]:
    """The tables and their notes, to be printed one after the other."""
    return with_notes(sheets(record, only_summary=only_summary, cells=cells), notes(record))


def with_notes(shown: Iterable[Sheet], below: Iterable[str]) -> Iterator[RenderableType]:
    """Tables for the terminal, and sentences below them."""
    from rich.text import Text

    for sheet in shown:
        yield from drawn(sheet)
    yield from map(Text, below)


def markdown(record: Record, *, only_summary: bool = False) -> str:
    """The same as Markdown."""
    blocks = [sheet_as_markdown(sheet) for sheet in sheets(record, only_summary=only_summary)]
    return "\n".join([*blocks, bullets(notes(record))])


def plots(record: Record) -> dict[str, str]:
    """SVG by name: the time over SDPA's against the length, a row of panels for each op."""
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError(
            'the plot needs matplotlib, which is not installed: pip install "milepost[plot]", '
            "then run `milepost bench table FILE --plot`"
        ) from error
    from milepost.bench import plot
    from milepost.report.plots import STYLE, svg_text, themed

    drawn_by_name = {}
    with matplotlib.rc_context(STYLE):
        for name, decode, directions in (
            ("gpu", False, (FORWARD, BOTH)),
            ("gpu-decode", True, (FORWARD,)),
        ):
            chosen = [group for group in groups(record) if group.decode == decode]
            if any(figure(group, FORWARD) is not None for group in chosen):
                drawn_by_name[name] = themed(svg_text(plot.panels(chosen, directions)), name)
    return drawn_by_name
