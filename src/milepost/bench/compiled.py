"""What a file of compiled kernels holds, what in it must not be, and its tables.

A file is one JSON object, with each configuration on a line of its own:

    format          1
    kind            "compile"
    date            when it began, in UTC
    which           "shipped"; or "every", the full product, or "gate" (`shipped.py`)
    targets         for each target: bytes of shared memory that a block may take, the assembler
    versions        of milepost, torch, python and triton
    source          the commit, and whether files differ from it; null outside a checkout
    configurations  for each target, op, dtype, head_dim, variant and kernel: the blocks, and what
                    `resources.py` lists; or `failure` instead, where it does not compile

Of the tables, the first sums up each target. The second has a row for each kernel of one of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.bench import shipped
from milepost.bench.table import NOTHING, Sheet, bullets, drawn, sheet_as_markdown
from milepost.errors import UsageError
from milepost.files import read_object, write_text

if TYPE_CHECKING:
    from rich.console import RenderableType

FORMAT, KIND = 1, "compile"
FIELDS = (
    "format",
    "kind",
    "date",
    "which",
    "targets",
    "versions",
    "source",
    "configurations",
)
MOST_TENSOR_MEMORY = 512  # columns of a block, on sm_100
SHORT = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
MATRIX = ("HGMMA", "HMMA", "UTCMMA", "MFMA")
FP32 = ("FFMA", "FADD", "FMUL")
SHOWN = ("MUFU", "LDG", "LDGSTS", "LDS", "STS", "SHFL", "BAR")

Record = dict[str, Any]


def write(path: Path, record: Record) -> None:
    """Write the record, a line for each configuration, so that a difference is one line."""
    rest = {name: value for name, value in record.items() if name != "configurations"}
    lines = [json.dumps(row, ensure_ascii=False) for row in record["configurations"]]
    head = json.dumps(rest, indent=2, ensure_ascii=False).removesuffix("\n}")
    body = ",\n".join(f"    {line}" for line in lines)
    write_text(path, f'{head},\n  "configurations": [\n{body}\n  ]\n}}\n')


def is_one(path: Path) -> bool:
    """Whether the file at `path` says that it is such a record."""
    return path.is_file() and read_object(path, ()).get("kind") == KIND


def load(path: Path) -> Record:
    """The record in the file at `path`."""
    record = read_object(path, FIELDS)
    if (record["format"], record["kind"]) != (FORMAT, KIND):
        raise UsageError(
            f"{path} does not hold what this release compiles: give a file that "
            "`milepost bench compile` wrote"
        )
    return record


def label(row: Record) -> str:
    """A configuration as it stands in messages."""
    variant = f", {row['variant']}" if row["variant"] != shipped.PLAIN else ""
    return (
        f"{row['target']}: {row['kernel']} of {row['op']}, {row['dtype']}, head_dim "
        f"{row['head_dim']}{variant}"
    )


def spills(row: Record) -> bool:
    """Whether a kernel keeps in memory what its registers do not hold."""
    return "failure" not in row and bool(row["stack"] or row["spills"])


def failures(record: Record) -> Iterator[str]:
    """What may not be shipped, one line each."""
    for row in record["configurations"]:
        name = label(row)
        if "failure" in row:
            yield f"{name}: does not compile ({row['failure']})"
            continue
        if spills(row):
            yield f"{name}: spills, {row['stack']} bytes of stack in {row['registers']} registers"
        limit = record["targets"][row["target"]]["shared"]
        if row["shared"] > limit:
            yield f"{name}: takes {row['shared']} bytes of shared memory, a block has {limit}"
        if row.get("tensor_memory", 0) > MOST_TENSOR_MEMORY:
            yield (
                f"{name}: takes {row['tensor_memory']} columns of tensor memory, a block has "
                f"{MOST_TENSOR_MEMORY}"
            )


def kibibytes(size: int) -> str:
    """Bytes as KiB: 40, or 40.5."""
    return f"{size / 1024:.1f}".removesuffix(".0")


def summary(record: Record) -> Sheet:
    """A row for each target."""
    rows = []
    for name, about in record["targets"].items():
        every = [row for row in record["configurations"] if row["target"] == name]
        good = [row for row in every if "failure" not in row]
        most = max((row["shared"] for row in good), default=0)
        rows.append(
            [
                name,
                str(len(every)),
                str(len(every) - len(good)),
                str(sum(map(spills, good))),
                str(max((row["registers"] for row in good), default=0)),
                kibibytes(most),
                kibibytes(about["shared"]),
            ]
        )
    heads = ["target", "kernels", "do not compile", "spill", "most registers", "most shared, KiB"]
    return Sheet("Each target", [*heads, "a block has, KiB"], rows, 1)


def details(record: Record, target: str, variants: Sequence[str] = shipped.VARIANTS) -> Sheet:
    """A row for each kernel of a target."""
    rows = []
    for row in record["configurations"]:
        if row["target"] != target or row["variant"] not in variants:
            continue
        variant = "" if row["variant"] == shipped.PLAIN else f", {row['variant']}"
        cells = [row["op"] + variant, row["kernel"], SHORT[row["dtype"]], str(row["head_dim"])]
        if "failure" in row:
            rows.append([*cells, "does not compile", *[NOTHING] * (6 + len(SHOWN))])
            continue
        tile = " × ".join(str(row[axis]) for axis in ("M", "N") if row[axis] is not None)
        tile += f", {row['step']}" if row["step"] is not None else ""
        cells += [tile, str(row["warps"]), str(row["registers"])]
        cells += [_spilled(row), kibibytes(row["shared"])]
        rows.append([*cells, *_instructions(row["instructions"])])
    heads = ["op", "kernel", "dtype", "D", "tile", "warps", "registers", "stack", "shared, KiB"]
    return Sheet(f"Kernels for {target}", [*heads, "matrix", "fp32", *SHOWN], rows, 2)


def _spilled(row: Record) -> str:
    """Bytes of stack, and the instructions that reach it."""
    found = str(row["stack"])
    return f"{found} ({row['spills']})" if row["spills"] else found


def _instructions(count: dict[str, int] | None) -> list[str]:
    """Products of matrices, by the instruction that makes them; arithmetic; and the others."""
    if count is None:
        return [NOTHING] * (2 + len(SHOWN))
    matrix = " ".join(f"{count[kind]} {kind}" for kind in MATRIX if count.get(kind))
    fp32 = str(sum(count.get(kind, 0) for kind in FP32))
    return [matrix or NOTHING, fp32, *(str(count.get(kind, 0)) for kind in SHOWN)]


def sheets(record: Record, *, only_summary: bool = False) -> Iterator[Sheet]:
    """The tables: in full of the only target, else of the one that is tuned, without `start`."""
    yield summary(record)
    names = list(record["targets"])
    if only_summary:
        return
    if len(names) == 1:
        yield details(record, names[0])
    elif shipped.TUNED in names:
        yield details(record, shipped.TUNED, (shipped.PLAIN, shipped.DECODE))


def notes(record: Record) -> list[str]:
    """What a reader needs to know below the tables."""
    versions, source = record["versions"], record["source"]
    commit = "" if source["commit"] is None else f" at {source['commit'][:10]}"
    commit += " with changes" * bool(commit and source["dirty"])
    assemblers: Iterable[str] = dict.fromkeys(
        about["assembler"] for about in record["targets"].values() if "assembler" in about
    )
    return [
        f"Triton {versions['triton']} ({', '.join(assemblers) or 'no NVIDIA target'}), PyTorch "
        f"{versions['torch']}, milepost {versions['milepost']}{commit}; {record['date'][:10]}.",
        "Which configurations are shipped, and what each column is: docs/gpu-resources.md.",
    ]


def terminal(record: Record, *, only_summary: bool = False) -> Iterator[RenderableType]:
    """The tables and their notes, to be printed one after the other."""
    from rich.text import Text

    for sheet in sheets(record, only_summary=only_summary):
        yield from drawn(sheet)
    for line in notes(record):
        yield Text(line)


def markdown(record: Record, *, only_summary: bool = False) -> str:
    """The same as Markdown."""
    blocks = [sheet_as_markdown(sheet) for sheet in sheets(record, only_summary=only_summary)]
    return "\n".join([*blocks, bullets(notes(record))])
