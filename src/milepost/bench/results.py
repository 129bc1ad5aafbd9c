"""What a file of results holds, and the figures that are quoted from it.

A file is one JSON object, written whole after each step, so that a run that was stopped leaves
what it had measured:

    format      1
    kind        "cpu"
    date        when the run began, in UTC
    finished    whether it came to its end
    arguments   what was asked for
    machine     processor, cores, instruction sets
    isa         the variant of the native kernels; null for another backend
    versions    of milepost, torch and python
    source      the commit, and whether files differ from it; null outside a checkout
    checks      for each op, gates, head_dim and number of threads: the verdict, and the errors
    cases       for each case and direction: of each contender the seconds of every round, their
                median and minimum, the ratio to SDPA of every round, and the median of these
    memory      for a few lengths: the peak of forward + backward, of each contender
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.errors import UsageError
from milepost.files import read_object
from milepost.wording import counted

FORMAT, KIND = 1, "cpu"
FIELDS = (
    "format",
    "kind",
    "date",
    "finished",
    "arguments",
    "machine",
    "isa",
    "versions",
    "source",
    "checks",
    "cases",
    "memory",
)
FORWARD, BOTH = "forward", "forward+backward"
DIRECTIONS = (FORWARD, BOTH)
MILEPOST, SDPA = "milepost", "sdpa"

Record = dict[str, Any]


def load(path: Path) -> Record:
    """The results in the file at `path`."""
    if not path.is_file():
        raise UsageError(
            f"{path} is no file of results: give the JSON file that `milepost bench cpu` wrote"
        )
    if read_object(path, ()).get("kind") != KIND:
        raise UsageError(
            f"{path} holds something else than results: give the JSON file that "
            "`milepost bench cpu` wrote"
        )
    record = read_object(path, FIELDS)
    if record["format"] != FORMAT:
        raise UsageError(
            f"{path} has format {record['format']!r}, this release reads {FORMAT}: use the "
            "release that wrote it, or measure again"
        )
    return record


def timed(seconds: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Any]]:
    """Of each contender the rounds, and what they come to."""
    return {
        name: {
            "median": statistics.median(taken),
            "minimum": min(taken),
            "ratio": quotient(taken, seconds[SDPA]),
            "seconds": [_rounded(one) for one in taken],
            "ratios": [_rounded(x / y) for x, y in zip(taken, seconds[SDPA], strict=True)],
        }
        for name, taken in seconds.items()
    }


def _rounded(number: float) -> float:
    """Six digits, which is more than a clock is good for."""
    return float(f"{number:.6g}")


def quotient(taken: Sequence[float], others: Sequence[float]) -> float:
    """The median over the rounds of one contender's time over another's of the same round."""
    return statistics.median(one / other for one, other in zip(taken, others, strict=True))


@dataclass(frozen=True)
class Group:
    """The cases of one table: they differ in head_dim and length."""

    op: str
    gates: str
    threads: int
    decode: bool
    cases: list[Record]

    @property
    def title(self) -> str:
        """As it stands above a table."""
        gates = "" if self.alone else f", {self.gates} gates"
        threads = counted(self.threads, "thread")
        return f"{self.op}{gates}, {'decoding, ' if self.decode else ''}{threads}"

    alone: bool = False
    """Whether the op has one kind of gates only."""


def groups(record: Record) -> list[Group]:
    """The cases by table, in the order in which they were run."""
    found: dict[tuple[str, str, int, bool], list[Record]] = {}
    kinds: dict[str, set[str]] = {}
    for case in record["cases"]:
        key = case["op"], case["gates"], case["threads"], case["decode"]
        found.setdefault(key, []).append(case)
        kinds.setdefault(case["op"], set()).add(case["gates"])
    return [Group(*key, cases, len(kinds[key[0]]) == 1) for key, cases in found.items()]


def ratio(case: Record, direction: str, name: str, to: str = SDPA) -> float | None:
    """How many times as long one contender of a case takes as another."""
    contenders = case["directions"].get(direction, {})
    if name not in contenders or to not in contenders:
        return None
    return quotient(contenders[name]["seconds"], contenders[to]["seconds"])


@dataclass(frozen=True)
class Figure:
    """The median of a ratio over the cases of a table, and the ends."""

    median: float
    lowest: float
    highest: float
    cases: int


def figure(group: Group, direction: str, name: str = MILEPOST, to: str = SDPA) -> Figure | None:
    """What is quoted: the median over head dimensions and lengths."""
    found = [
        value for case in group.cases if (value := ratio(case, direction, name, to)) is not None
    ]
    if not found:
        return None
    return Figure(statistics.median(found), min(found), max(found), len(found))


def failures(record: Record) -> Iterator[str]:
    """What was not measured though it should have been, one line each."""
    for check in record["checks"]:
        if check["verdict"] != "right" and not check["optional"]:
            yield f"{check['label']}: {check['verdict']}, not timed ({check['reason']})"
    for case in record["cases"]:
        if "failure" in case:
            yield f"{case['label']}: {case['failure']}"
    for entry in record["memory"]:
        if "failure" in entry:
            yield f"{entry['label']}, memory of {entry['contender']}: {entry['failure']}"


def memory_of(record: Record, case: Record, name: str) -> Record | None:
    """What a contender needs at the sizes of a case, where that was measured."""
    for entry in record["memory"]:
        same = all(entry[key] == case[key] for key in ("op", "head_dim", "keys", "threads"))
        if same and not case["decode"] and entry["contender"] == name and "bytes" in entry:
            found: Record = entry
            return found
    return None


@dataclass(frozen=True)
class Growth:
    """Memory beside outputs and gradients: per token at the longest length, and its power of T."""

    contender: str
    op: str
    head_dim: int
    keys: int
    per_token: float
    power: float | None
    """1 is linear, 2 quadratic; None from next to nothing, or from a span of less than 4."""


def growth(record: Record) -> list[Growth]:
    """How memory grows, for each op and head_dim, and for each contender."""
    found: dict[tuple[str, int, str], dict[int, int]] = {}
    for entry in record["memory"]:
        if "bytes" in entry:
            key = entry["op"], entry["head_dim"], entry["contender"]
            found.setdefault(key, {})[entry["keys"]] = entry["bytes"] - entry["results"]
    grown = []
    for (op, head_dim, contender), by_length in found.items():
        *before, longest = sorted(by_length)
        power = None
        # Short sequences say more about the allocator, and about what only long ones need: from
        # one length to at least its double, over a span of 4, and not below a quarter of a MiB
        half = max((keys for keys in before if 2 * keys <= longest), default=None)
        if half and 4 * before[0] <= longest and by_length[half] >= 2**18:
            power = math.log(by_length[longest] / by_length[half], longest / half)
        per_token = by_length[longest] / longest
        grown.append(Growth(contender, op, head_dim, longest, per_token, power))
    return grown
