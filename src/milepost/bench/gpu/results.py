"""What a file of a GPU's results holds, and the figures that are quoted from it.

Beside the fields of a CPU's file (`milepost.bench.results`), which mean the same:

    kind         "gpu"
    ceilings     TFLOP/s of a product of matrices, and TB/s of a copy, as measured at the start
    checks       for each op, gates, head_dim, dtype and shape: the verdict, the errors, and which
                 results a second run gave other bits of
    cases        for each cell and direction of each contender: the seconds of a call in every
                 round, and what they come to; how many calls a measurement had; of SDPA, which
                 backend was taken, and the seconds of all; and who was left out, and why
    memory       the peak of forward + backward, in bytes
    models       seconds of a training step, with each encoding and, in the same rounds, by SDPA
    not_reached  what the time did not suffice for
    failures     what broke
    done         the steps that are over
    under_way    the step that was begun and is not over
    spent        seconds by part
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.bench import check, results
from milepost.bench.gpu.cells import BACKWARD, Cell, gates_of
from milepost.bench.results import BOTH, FORWARD, SDPA, Record, quotient
from milepost.errors import UsageError
from milepost.files import read_object

FORMAT, KIND = 1, "gpu"
DIRECTIONS = (FORWARD, BACKWARD, BOTH)
FIELDS = (
    "format",
    "kind",
    "date",
    "finished",
    "arguments",
    "machine",
    "versions",
    "source",
    "ceilings",
    "checks",
    "cases",
    "memory",
    "models",
    "not_reached",
    "failures",
    "done",
    "under_way",
    "spent",
)


def kind_of(path: Path) -> str | None:
    """What a file of results says that it holds; None where it is none."""
    if not path.is_file():
        return None
    found = read_object(path, ()).get("kind")
    return found if isinstance(found, str) else None


def load(path: Path) -> Record:
    """The results in the file at `path`."""
    if kind_of(path) != KIND:
        raise UsageError(
            f"{path} is no file of a GPU's results: give the JSON file that `milepost bench gpu` "
            "wrote"
        )
    record = read_object(path, FIELDS)
    if record["format"] != FORMAT:
        raise UsageError(
            f"{path} has format {record['format']!r}, this release reads {FORMAT}: use the "
            "release that wrote it, or measure again"
        )
    return record


def timed(seconds: Mapping[str, Sequence[float]], calls: Mapping[str, int]) -> dict[str, Any]:
    """Of each contender the rounds, and what they come to."""
    return {
        name: {
            "median": statistics.median(taken),
            "minimum": min(taken),
            "ratio": quotient(taken, seconds[SDPA]) if SDPA in seconds else None,
            "calls": calls[name],
            "seconds": [float(f"{one:.6g}") for one in taken],
        }
        for name, taken in seconds.items()
        if taken
    }


@dataclass(frozen=True)
class Group(results.Group):
    """The cells of one table: they differ in head_dim and length."""

    @property
    def title(self) -> str:
        """As it stands above a table."""
        gates = "" if self.alone else f", {self.gates} gates"
        return f"{self.op}{gates}{', decoding' if self.decode else ''}"


def groups(record: Record) -> list[Group]:
    """The cells by table, in the order in which they were run; within one, by size."""
    found: dict[tuple[str, str, bool], list[Record]] = {}
    for case in record["cases"]:
        found.setdefault((case["op"], case["gates"], case["decode"]), []).append(case)
    return [
        Group(
            op,
            gates,
            1,
            decode,
            sorted(cases, key=lambda case: (case["head_dim"], case["keys"])),
            len(gates_of(op)) == 1,
        )
        for (op, gates, decode), cases in found.items()
    ]


def rate(case: Record, direction: str, name: str) -> float | None:
    """FLOP/s, counting the products that plain attention needs.

    A kernel that leaves weightless pairs out does fewer, and may seem to pass the ceiling.
    """
    one = case["directions"].get(direction, {}).get(name)
    if one is None:
        return None
    cell = Cell(case["op"], case["gates"], case["head_dim"], case["keys"], case["decode"])
    return cell.flops(direction) / float(one["median"])


def failures(record: Record) -> Iterator[str]:
    """What was wrong or broke, one line each; not what merely could not take part."""
    for one in record["checks"]:
        if one["optional"]:
            continue
        if one["verdict"] != check.RIGHT:
            yield f"{one['label']}: {one['verdict']} ({one['reason']})"
        elif one["differs"]:
            yield f"{one['label']}: a second run gave other bits of {', '.join(one['differs'])}"
    yield from record["failures"]


def wrong(record: Record, op: str, head_dim: int, dtype: str) -> str | None:
    """Why the figures of an op are those of a kernel that is not right; None if it is."""
    for one in record["checks"]:
        same = (one["op"], one["head_dim"], one["dtype"]) == (op, head_dim, dtype)
        if same and not one["optional"] and one["verdict"] != check.RIGHT:
            return f"{one['verdict']}: {one['reason']}"
    return None
