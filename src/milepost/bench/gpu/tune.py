"""Which blocks the kernels should take: measured, and written down in the source.

A row of the table in `milepost.ops.triton._blocks` is shared by several ops, and tuned with the
first of them that is asked for. `milepost bench compile` says whether the others spill with it.

Candidates for one kernel are tried while the others keep theirs. Each is compiled and checked
against the reference in a process of its own, several at once; those that are right are timed in
paired rounds, with typical and with never saturating gates. The best of each kernel together are
checked and timed once more.

The kernels "band_query" and "band_key" of ops that count or break sticks share the width of a tile
of keys: there a candidate is both.
"""

import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import torch

from milepost import machine
from milepost.bench import check
from milepost.bench.cases import Shape, operands
from milepost.bench.contenders import by
from milepost.bench.gpu import worker
from milepost.bench.gpu.baselines import BACKEND, Runner
from milepost.bench.gpu.cells import BACKWARD, HEADS, gates_of
from milepost.bench.gpu.device import Device, versions
from milepost.bench.gpu.plan import Plan
from milepost.bench.gpu.timing import Entrant, paired, reason
from milepost.bench.measure import Clock, Limits
from milepost.bench.results import FORWARD, Record
from milepost.errors import UsageError
from milepost.ops.triton._blocks import (
    HEAD_DIMS,
    TABLE,
    Blocks,
    Sizes,
    blocks,
    column,
    forced,
    row,
    target,
)

KIND, FORMAT = "gpu-blocks", 2
# The shape of the checks: its last tiles are not full, and its numbers are multiples of 16, as
# those that are timed, so that one compilation serves both
CHECKED = Shape(1, HEADS, HEADS, 400, 400, 64)
CHECKED_CACHE = Shape(2, HEADS, HEADS, 1, 1024, 64)
TIMED = Shape(2, HEADS, HEADS, 8192, 8192, 64)
TIMED_CACHE = Shape(4, HEADS, HEADS, 1, 32768, 64)
ROUNDS = Limits(most=3, seconds=5.0, least=3)

COUNTING = ("cope", "cope_separate", "cope_alibi")
# What kernels call an op, where it has another name
KINDS = {"bias": "bias_table", "cope_separate": "cope"}

# M, N, warps, stages, and step if less than all of head_dim is multiplied at a time
FORWARD_BLOCKS = (
    (64, 32, 4, 2),
    (64, 64, 4, 2),
    (64, 64, 4, 3),
    (64, 128, 4, 2),
    (128, 32, 4, 2),
    (128, 32, 8, 2),
    (128, 64, 4, 2),
    (128, 64, 4, 3),
    (128, 64, 8, 2),
    (128, 64, 8, 3),
    (128, 128, 8, 2),
)
BACKWARD_BLOCKS = (
    (64, 32, 4, 2),
    (64, 64, 4, 1),
    (64, 64, 4, 2),
    (64, 64, 4, 3),
    (64, 64, 8, 2),
    (64, 128, 8, 2),
    (128, 32, 8, 2),
    (128, 64, 8, 1),
    (128, 64, 8, 2),
    (128, 64, 4, 2),
)
BAND_BLOCKS = (
    (32, 32, 4, 1),
    (64, 32, 4, 1),
    (64, 32, 4, 2),
    (64, 32, 8, 1),
    (64, 64, 4, 1),
    (64, 64, 8, 1),
    (64, 64, 8, 2),
)
DECODE_BLOCKS = (
    (16, 32, 4, 2),
    (16, 64, 4, 2),
    (16, 64, 4, 3),
    (16, 128, 4, 2),
    (16, 128, 8, 2),
)
FP32_BLOCKS = (
    (16, 32, 4, 1),
    (16, 16, 8, 1, 16),
    (16, 32, 8, 1, 32),
    (16, 32, 8, 1, 64),
    (32, 32, 4, 1),
    (32, 32, 8, 1, 32),
    (32, 64, 4, 1),
    (64, 32, 4, 1),
    (64, 64, 8, 1),
)

# What a candidate takes to compile and check in a worker, and to time, in seconds
COMPILE_SECONDS, TIME_SECONDS, START_SECONDS = 12.0, 0.4, 10.0
CANDIDATES_PER_JOB = 3

Candidate = dict[str, list[int]]


@contextmanager
def within(candidate: Candidate) -> Iterator[None]:
    """The kernels that a candidate names take its blocks."""
    with ExitStack() as stack:
        for kernel, numbers in candidate.items():
            stack.enter_context(forced(kernel, Blocks(*numbers)))
        yield


def jobs(plan: Plan) -> list[dict[str, Any]]:
    """What is tuned: the kernels of an op at a head_dim whose rows no earlier op has."""
    found = []
    for head_dim in plan.head_dims:
        if head_dim not in HEAD_DIMS:
            raise UsageError(
                f"head-dims must be of {', '.join(map(str, HEAD_DIMS))} to tune, got {head_dim}: "
                "each stands for all up to it"
            )
        rows: set[str] = set()
        for op in dict.fromkeys([*plan.main(), *plan.ops]):
            job: dict[str, Any] = {"op": op, "head_dim": head_dim, "dtype": plan.dtype}
            mine = {kernel: row(kernel, sizes(job)) for kernel in kernels(op)}
            job["kernels"] = [kernel for kernel in mine if mine[kernel] not in rows]
            rows.update(mine.values())
            if job["kernels"]:
                found.append(job)
    return found


def kernels(op: str) -> list[str]:
    """What an op launches."""
    rest = [] if op == "stick_breaking" else ["backward_query", "backward_key"]
    counts = op in COUNTING or op == "stick_breaking"
    return ["forward", *rest, *(["band_query", "band_key"] if counts else []), "decode"]


def sizes(job: dict[str, Any]) -> Sizes:
    """What the choice depends on."""
    return Sizes(
        KINDS.get(job["op"], job["op"]),
        job["head_dim"],
        worker.DTYPES[job["dtype"]].itemsize,
        more=job["op"] == "cope_separate",
        target=tuned(),
    )


def tuned() -> str:
    """The target whose blocks are tuned; where no GPU is at hand, in a dry run, the H200's."""
    return target() if torch.cuda.is_available() else "sm_90"


Won = dict[tuple[str, int], list[int]]  # by row and column of the table


def present(job: dict[str, Any], won: Won) -> Candidate:
    """The blocks that all kernels of an op take now, or since they were tuned."""
    of = {kernel: (row(kernel, sizes(job)), column(sizes(job))) for kernel in kernels(job["op"])}
    return {kernel: won.get(of[kernel]) or list(blocks(kernel, sizes(job))) for kernel in of}


def stages(job: dict[str, Any]) -> list[tuple[str, ...]]:
    """The kernels that are tuned in turn; of several together, all have one N."""
    alone = [(kernel,) for kernel in job["kernels"] if not kernel.startswith("band")]
    together = tuple(kernel for kernel in job["kernels"] if kernel.startswith("band"))
    return [*alone, together] if together else list(alone)


def candidates(job: dict[str, Any], stage: tuple[str, ...], won: Won) -> list[Candidate]:
    """What is tried for the kernels of a stage, the present choice first, where that fits."""
    now = present(job, won)
    halves = sizes(job).bytes == 2
    tried: tuple[tuple[int, ...], ...]
    if "decode" in stage:
        tried = DECODE_BLOCKS if halves else tuple((16, *rest) for _, *rest in FP32_BLOCKS)
    elif not halves:
        tried = FP32_BLOCKS
    elif "forward" in stage:
        tried = FORWARD_BLOCKS
    else:
        tried = BACKWARD_BLOCKS if len(stage) == 1 else BAND_BLOCKS
    if len(stage) == 1:
        found = [{stage[0]: list(Blocks(*one))} for one in tried]
    else:
        query, key = stage
        # one of the two moves at a time, the other keeps the same N
        found = []
        for one in tried:
            stays = {kernel: [now[kernel][0], one[1], *now[kernel][2:]] for kernel in stage}
            moved = list(Blocks(*one))
            found += [stays | {query: moved}, stays | {key: moved}]
    unique: list[Candidate] = []
    for one_candidate in [{kernel: now[kernel] for kernel in stage}, *found]:
        if one_candidate not in unique and fits(job["op"], now | one_candidate):
            unique.append(one_candidate)
    return unique


def fits(op: str, chosen: Candidate) -> bool:
    """The kernels' own conditions: tiles of the band divide those of the rest."""
    if op not in COUNTING:
        return True
    return chosen["backward_query"][0] % chosen["band_query"][0] == 0


def beside(job: dict[str, Any], won: Won, one: Candidate) -> Candidate:
    """The candidate, and what the op's other kernels take with it; decoding has one alone."""
    if set(one) == {"decode"}:
        return one
    rest = {kernel: taken for kernel, taken in present(job, won).items() if kernel != "decode"}
    return rest | one


def all_of(job: dict[str, Any], won: Won) -> list[Candidate]:
    """Every candidate of every stage."""
    return [one for stage in stages(job) for one in candidates(job, stage, won)]


def expected(job: dict[str, Any]) -> float:
    """A guess at the seconds that an op takes to tune."""
    number = len(all_of(job, {}))
    waves = math.ceil(number / CANDIDATES_PER_JOB / worker.MOST_WORKERS)
    compiling = waves * (START_SECONDS + CANDIDATES_PER_JOB * COMPILE_SECONDS)
    return compiling + START_SECONDS + COMPILE_SECONDS + number * TIME_SECONDS


def run(
    plan: Plan,
    device: Device,
    *,
    pool: worker.Pool,
    clock: Clock,
    save: Callable[[Record], None],
    watch: Callable[[str], None],
    timed: Shape = TIMED,
    cache: Shape = TIMED_CACHE,
) -> Record:
    """Tune what the time suffices for; the record, which is saved after each op too."""
    record: Record = {
        "format": FORMAT,
        "kind": KIND,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "finished": False,
        "arguments": plan.written(),
        "machine": {**machine.describe(), **device.facts()},
        "versions": {**machine.versions(), **versions()},
        "source": machine.source(),
        "target": tuned(),
        "winners": [],
        "tried": [],
        "together": [],
        "not_reached": [],
        "failures": [],
    }
    save(record)
    began = clock()
    tuner = Tuner(plan, device, pool, clock, record, timed, cache)
    for job in jobs(plan):
        left = plan.seconds - (clock() - began)
        if expected(job) > left:
            record["not_reached"].append(worker.label(job))
            continue
        try:
            watch(f"{worker.label(job)}: {tuner.tune(job, left)}")
        except Exception as error:
            record["failures"].append(f"{worker.label(job)}: {reason(error)}")
            watch(f"FAILED: {record['failures'][-1]}")
            if not device.works():
                break
        device.free()
        save(record)
    else:
        record["finished"] = True
    save(record)
    return record


class Tuner:
    """A tuning under way."""

    def __init__(
        self,
        plan: Plan,
        device: Device,
        pool: worker.Pool,
        clock: Clock,
        record: Record,
        timed: Shape,
        cache: Shape,
    ) -> None:
        self.plan, self.device, self.pool, self.clock = plan, device, pool, clock
        self.record, self.timed, self.cache = record, timed, cache
        self.won: Won = {}

    def tune(self, job: dict[str, Any], seconds: float) -> str:
        """All kernels of an op; what came of it, in a line."""
        right = self.right(job, all_of(job, self.won), seconds)
        before = present(job, self.won)
        best = dict(before)
        for stage in stages(job):
            chosen = [one for one in candidates(job, stage, self.won) if one in right]
            # what won before and would not fit beside it
            chosen = [one for one in chosen if fits(job["op"], best | one)]
            if not chosen:
                raise RuntimeError(f"no blocks for {' and '.join(stage)} are right")
            medians = self.measure(job, stage, chosen)
            if not medians:
                raise RuntimeError(f"no blocks for {' and '.join(stage)} could be timed")
            winner = min(medians, key=lambda index: medians[index])
            best |= chosen[winner]
            now = medians.get(0) if chosen[0] == {k: before[k] for k in stage} else None
            for kernel in stage:
                self.won[row(kernel, sizes(job)), column(sizes(job))] = best[kernel]
                self.record["winners"].append(
                    {
                        **job,
                        "kernel": kernel,
                        "row": row(kernel, sizes(job)),
                        "column": column(sizes(job)),
                        "blocks": best[kernel],
                        "before": before[kernel],
                        "seconds": medians[winner],
                        "seconds_before": now,
                    }
                )
        if best == before:
            return "the present blocks are the best"
        if best not in self.right(job, [best], seconds):
            raise RuntimeError(f"the best of each kernel are not right together: {best}")
        return self.together(job, before, best)

    def right(self, job: dict[str, Any], tried: list[Candidate], seconds: float) -> list[Candidate]:
        """The candidates that compile and are right."""
        found: list[Candidate] = []

        def ended(asked: worker.Job, findings: list[worker.Finding], why: str | None) -> None:
            for finding in findings:
                self.record["tried"].append({**job, **finding})
                if finding["verdict"] == check.RIGHT:
                    found.append(tried[full.index(finding["blocks"])])
            missing = asked["candidates"][len(findings) :]
            self.record["tried"] += [
                {**job, "blocks": one, "verdict": check.REFUSED, "reason": why} for one in missing
            ]

        size = CANDIDATES_PER_JOB
        full = [beside(job, self.won, one) for one in tried]
        asked = [
            {**job, "kind": "blocks", "candidates": full[begin : begin + size]}
            for begin in range(0, len(tried), size)
        ]
        self.pool(asked, seconds, ended)
        return found

    def measure(
        self, job: dict[str, Any], stage: tuple[str, ...], chosen: list[Candidate]
    ) -> dict[int, float]:
        """Of each candidate, by its place, the mean over gates of the seconds of a call."""
        direction = FORWARD if stage[0] in ("forward", "decode") else BACKWARD
        shape = self.cache if stage[0] == "decode" else self.timed
        logs: dict[int, list[float]] = {}
        for name, seconds in self.seconds(job, chosen, direction, shape):
            logs.setdefault(name, []).append(math.log(seconds))
        kinds = max(map(len, logs.values()), default=0)
        return {i: math.exp(statistics.mean(x)) for i, x in logs.items() if len(x) == kinds}

    def seconds(
        self, job: dict[str, Any], chosen: list[Candidate], direction: str, shape: Shape
    ) -> Iterator[tuple[int, float]]:
        """The median of each candidate, for each kind of gates."""
        dtype = worker.DTYPES[job["dtype"]]
        kinds = gates_of(job["op"])
        for gates in dict.fromkeys((kinds[0], kinds[-1])):
            size = Shape(shape.B, shape.H, shape.G, shape.S, shape.T, job["head_dim"])
            given = operands(job["op"], gates, size, dtype, device=self.device.name)
            runner = Runner(by(job["op"], BACKEND), given)
            entrants = {
                str(i): self.entrant(runner, direction, beside(job, self.won, one))
                for i, one in enumerate(chosen)
            }
            taken = paired(entrants, self.device, ROUNDS, self.clock, self.plan.least_seconds)
            for name, found in taken.seconds.items():
                yield int(name), statistics.median(found)
            for name, why in taken.left_out.items():
                failed = {"blocks": chosen[int(name)], "verdict": "not timed", "reason": why}
                self.record["tried"].append({**job, **failed})

    def entrant(self, runner: Runner, direction: str, candidate: Candidate) -> Entrant:
        """The call with these blocks."""
        around: Callable[[], AbstractContextManager[Any]] = partial(within, candidate)
        return runner.entrant(direction, around)

    def together(self, job: dict[str, Any], before: Candidate, best: Candidate) -> str:
        """What has other blocks now, with those before and with the best ones."""
        said = []
        changed = {kernel for kernel in best if best[kernel] != before[kernel]}
        for what, direction, shape, these in (
            (FORWARD, FORWARD, self.timed, {"forward"}),
            (BACKWARD, BACKWARD, self.timed, set(best) - {"forward", "decode"}),
            ("decode", FORWARD, self.cache, {"decode"}),
        ):
            if not these & changed:
                continue
            logs: dict[int, list[float]] = {0: [], 1: []}
            for name, seconds in self.seconds(job, [before, best], direction, shape):
                logs[name].append(math.log(seconds))
            gain = math.exp(statistics.mean(logs[1]) - statistics.mean(logs[0]))
            self.record["together"].append({**job, "direction": what, "ratio": gain})
            said.append(f"{what} {gain:.2f}×")
        return f"time over that of the present blocks: {', '.join(said)}"


def text(record: Record) -> str:
    """The table in `milepost.ops.triton._blocks` for this GPU and dtype, with the winners in it."""
    of = record["target"], worker.DTYPES[record["arguments"]["dtype"]].itemsize
    rows = {name: list(cells) for name, cells in TABLE[of].items()}
    for one in record["winners"]:
        rows[one["row"]][one["column"]] = Blocks(*one["blocks"]).written()
    lines = [f'        "{name}": ({", ".join(map(str, cells))}),' for name, cells in rows.items()]
    about = f"    # {record['machine']['gpu']}, {record['date'][:10]}"
    return "\n".join([about, f'    ("{of[0]}", {of[1]}): {{', *lines, "    },"])
