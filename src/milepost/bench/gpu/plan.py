"""What a run on a GPU does, in which order, and how long that should take.

The order is that of worth: where the time runs out, what was most wanted is there. The seconds come
from a simple model, rates that are assumed and a time for each kernel that is compiled; they serve
to plan with, and are no measurements.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from milepost.bench.cases import SUBJECTS, TYPICAL
from milepost.bench.contenders import LISTING, MILEPOST, PLAIN, SDPA
from milepost.bench.gpu import baselines
from milepost.bench.gpu.baselines import FLEX, FLEXIBLE, LISTING_COMPILED, OFFICIAL
from milepost.bench.gpu.cells import BACKWARD, Cell, gates_of
from milepost.bench.gpu.timing import LEAST_SECONDS
from milepost.bench.gpu.worker import MOST_WORKERS
from milepost.bench.measure import Limits
from milepost.bench.plan import head_dims_from, numbers, ops_from, words
from milepost.bench.results import BOTH, FORWARD
from milepost.errors import UsageError, unknown

DIRECTIONS = (FORWARD, BACKWARD, BOTH)
DTYPES = ("bfloat16", "float16", "float32")
MAIN = ("softmax", "cope", "forgetting", "stick_breaking")
OTHERS = ("bias", "relative", "cope_separate", "cope_alibi", "bias_dense")

CHECKS, TABLE, SWEEP, DECODE, MEMORY, MODEL, OTHER, MODELS, REST = (
    "checks",
    "table",
    "sweep",
    "decode",
    "memory",
    "model",
    "others",
    "models",
    "rest",
)
PARTS = {
    CHECKS: "every op right, forward and backward, and twice the same",
    TABLE: "the ops at 4096 and 16384 tokens, every kind of gates, everyone who can take part",
    SWEEP: "short and long sequences; the longest of each head_dim first",
    DECODE: "one query against a cache",
    MEMORY: "peak memory of forward and backward",
    MODEL: "a 124M model in training, with the papers' encodings",
    OTHER: "the other ops at 4096 tokens",
    MODELS: "a 124M model in training, with each other encoding",
    REST: "short and long sequences, all that the sweep left out",
}

TABLE_LENGTHS = (4096, 16384)
OTHER_LENGTH = 4096
CACHES = (8192, 32768, 131072)
MEMORY_LENGTHS = (4096, 16384, 65536)
MODEL_LENGTHS = (1024, 4096)
ENCODINGS = ("rope", "cope", "fox", "stick-breaking", "none", "alibi")
LISTING_UP_TO = 16384  # where it needs more than any GPU has

# What the model of time assumes: rates in TFLOP/s, of the products alone; seconds for one
# compilation by torch.compile, for what runs before the checks, for a job of checks with and
# without the kernels that are timed, and so on
RATES = {MILEPOST: 150.0, PLAIN: 200.0, SDPA: 400.0, FLEX: 250.0, LISTING: 4.0}
OTHER_RATE = 100.0
COMPILED_SECONDS = {FLEX: 6.0, LISTING_COMPILED: 25.0}
START_SECONDS, TIMED_SECONDS, CHECK_SECONDS = 10.0, 55.0, 20.0
CELL_SECONDS, CAPTURE_SECONDS, MODEL_SECONDS = 0.4, 0.5, 3.5
WARM_UP = 3

# Beyond the seconds that a run is given, until a process that hangs is ended
GRACE_SECONDS = 30.0


@dataclass(frozen=True)
class Options:
    """The words of the command line."""

    ops: str | None = None
    lengths: str = "1024,2048,4096,8192,16384,32768,65536"
    head_dims: str = "64,128"
    dtype: str = "bfloat16"
    parts: str | None = None
    seconds: float = 540.0
    rounds: int = 5


@dataclass(frozen=True)
class Plan:
    """What is measured, and how."""

    ops: tuple[str, ...]
    lengths: tuple[int, ...]
    head_dims: tuple[int, ...]
    dtype: str
    parts: tuple[str, ...]
    seconds: float
    limits: Limits
    caches: tuple[int, ...] = CACHES
    memory_lengths: tuple[int, ...] = MEMORY_LENGTHS
    model_lengths: tuple[int, ...] = MODEL_LENGTHS
    least_seconds: float = LEAST_SECONDS

    def main(self) -> list[str]:
        """The ops of the key table that are asked for."""
        return [op for op in MAIN if op in self.ops]

    def cells(self, part: str) -> list[Cell]:
        """The cells of a part."""
        return list(getattr(self, f"_{part}")())

    def _table(self) -> Iterator[Cell]:
        for keys in [keys for keys in TABLE_LENGTHS if keys in self.lengths]:
            for head_dim in self.head_dims:
                for op in self.main():
                    for gates in gates_of(op):
                        yield Cell(op, gates, head_dim, keys, others=everyone(op, gates, keys))

    def _longest_first(self) -> list[int]:
        rest = [keys for keys in self.lengths if keys not in TABLE_LENGTHS]
        return rest[-1:] + rest[:-1]

    def _sweep(self) -> Iterator[Cell]:
        longest, *shorter = self._longest_first() or [0]
        for head_dim in self.head_dims[1:]:
            for op in self.main() if longest else ():
                yield Cell(op, TYPICAL, head_dim, longest)
        for keys in (longest, *shorter) if longest else ():
            for op in self.main():
                for gates in dict.fromkeys((gates_of(op)[0], gates_of(op)[-1])):
                    listed = op == "cope" and gates == TYPICAL and keys <= LISTING_UP_TO
                    yield Cell(
                        op, gates, self.head_dims[0], keys, others=(LISTING,) if listed else ()
                    )

    def _rest(self) -> Iterator[Cell]:
        there = {replace(cell, others=()) for cell in self._sweep()}
        for head_dim in reversed(self.head_dims):
            for keys in self._longest_first():
                for op in self.main():
                    for gates in gates_of(op):
                        cell = Cell(op, gates, head_dim, keys)
                        if cell not in there:
                            yield cell

    def _decode(self) -> Iterator[Cell]:
        for keys in self.caches:
            for op in self.main():
                for gates in dict.fromkeys((gates_of(op)[0], gates_of(op)[-1])):
                    yield Cell(op, gates, self.head_dims[0], keys, decode=True)

    def _others(self) -> Iterator[Cell]:
        if OTHER_LENGTH not in self.lengths:
            return
        for op in OTHERS:
            if op in self.ops:
                for gates in dict.fromkeys((gates_of(op)[0], gates_of(op)[-1])):
                    others = (FLEX,) if op in FLEXIBLE else ()
                    yield Cell(op, gates, self.head_dims[0], OTHER_LENGTH, others=others)

    def _memory(self) -> Iterator[Cell]:
        for keys in self.memory_lengths:
            for op in self.main():
                others = (LISTING,) if op == "cope" and keys <= LISTING_UP_TO else ()
                yield Cell(op, TYPICAL, self.head_dims[0], keys, others=others)

    def jobs(self) -> list[dict[str, Any]]:
        """The checks, the timed dtype first; and what is compiled on the side."""
        chosen = list(dict.fromkeys([*self.main(), *self.ops]))
        others = [one for one in ("bfloat16", "float16", "float32") if one != self.dtype]
        jobs: list[dict[str, Any]] = [
            {"kind": "op", "op": op, "dtype": dtype, "head_dim": head_dim, "timed": timed}
            for dtype, timed in ((self.dtype, True), *((one, False) for one in others))
            for head_dim in (self.head_dims if timed else self.head_dims[:1])
            for op in chosen
        ]
        listed = [("cope", LISTING)] if "cope" in chosen else []
        for op in chosen:
            listed += [(op, FLEX)] if op in FLEXIBLE else []
            listed += [(op, name) for name in OFFICIAL.get(op, ())]
        given = {"dtype": self.dtype, "head_dim": self.head_dims[0]}
        jobs += [{"kind": "baseline", "op": op, "contender": n, **given} for op, n in listed]
        if TABLE in self.parts:
            flexed = {(c.op, c.head_dim, c.keys) for c in self._table() if FLEX in c.others}
            jobs += [
                {"kind": "compile", "contender": FLEX, "op": op, "dtype": self.dtype}
                | {"head_dim": head_dim, "keys": keys}
                for op, head_dim, keys in sorted(flexed)
            ]
        return jobs

    def expected(self, cell: Cell, part: str) -> float:
        """A guess at the seconds of a cell."""
        total = CELL_SECONDS
        directions = (FORWARD,) if cell.decode else DIRECTIONS
        for name in baselines.names(cell):
            if name in baselines.PACKAGES and baselines.missing(name) is not None:
                continue
            rate = RATES.get(name, OTHER_RATE) * 1e12
            if part == MEMORY:
                total += cell.flops(BOTH) / rate
                continue
            if cell.gates == TYPICAL:  # once for all kinds of gates
                total += COMPILED_SECONDS.get(name, 0.0)
            for direction in directions:
                once = cell.flops(direction) / rate
                a_round = max(once, self.least_seconds)
                most = self.limits.most * a_round
                fewest = self.limits.fewest * a_round
                total += WARM_UP * once + max(fewest, min(most, self.limits.seconds))
        return total + (CAPTURE_SECONDS if cell.decode else 0.0)

    def expected_checks(self) -> float:
        """A guess at the seconds of the checks."""
        jobs = self.jobs()
        work = sum(TIMED_SECONDS if job.get("timed") else CHECK_SECONDS for job in jobs)
        return START_SECONDS + max(TIMED_SECONDS, work / MOST_WORKERS)

    def models(self, part: str) -> list[tuple[str, int]]:
        """Encodings and lengths of the model."""
        if part == MODEL:
            return [(name, keys) for keys in self.model_lengths for name in ENCODINGS]
        from milepost import encoding

        rest = [name for name in encoding.names() if name not in ENCODINGS]
        return [(name, self.model_lengths[0]) for name in rest]

    def expected_parts(self) -> dict[str, list[float]]:
        """Of each part that is asked for, a guess at the seconds of each of its steps."""
        found: dict[str, list[float]] = {}
        for part in self.parts:
            if part == CHECKS:
                found[part] = [self.expected_checks()]
            elif part in (MODEL, MODELS):
                found[part] = [MODEL_SECONDS] * len(self.models(part))
            else:
                found[part] = [self.expected(cell, part) for cell in self.cells(part)]
        return found

    def written(self) -> dict[str, Any]:
        """The plan as JSON."""
        return {
            "ops": list(self.ops),
            "lengths": list(self.lengths),
            "head_dims": list(self.head_dims),
            "dtype": self.dtype,
            "parts": list(self.parts),
            "seconds": self.seconds,
            "rounds": self.limits.most,
            "round_seconds": self.limits.seconds,
            "least_seconds": self.least_seconds,
            "caches": list(self.caches),
        }


def everyone(op: str, gates: str, keys: int) -> tuple[str, ...]:
    """Who can take part in a cell of the key table, beside milepost, SDPA and plain."""
    others = [FLEX] if op in FLEXIBLE else []
    others += OFFICIAL.get(op, ())
    if op == "cope" and gates == TYPICAL and keys <= LISTING_UP_TO:
        others.append(LISTING)
        if keys == min(TABLE_LENGTHS):
            others.append(LISTING_COMPILED)
    return tuple(others)


def plan(options: Options) -> Plan:
    """The plan that a command line asks for, checked."""
    if options.dtype not in DTYPES:
        raise unknown("dtype", options.dtype, DTYPES)
    parts: Sequence[str] = tuple(PARTS)
    if options.parts is not None:
        asked = words("parts", options.parts)
        for part in asked:
            if part not in PARTS:
                raise unknown("name for parts", part, PARTS)
        parts = [part for part in PARTS if part in asked]
    if options.rounds < 1:
        raise UsageError(f"rounds must be at least 1, got {options.rounds}: 5 is usual")
    if not 0 < options.seconds < 1e9:
        raise UsageError(
            f"seconds must be a number above 0, got {options.seconds}: 540 is usual, which leaves "
            "a minute of ten for what comes before and after"
        )
    lengths = numbers("lengths", options.lengths, example="1024,4096")
    for length in lengths:
        # where tiles are full, everyone's kernels are compiled once, and FlexAttention's mask fits
        if length % baselines.MASK_BLOCK:
            raise UsageError(
                f"lengths must be multiples of {baselines.MASK_BLOCK}, got {length}: write them "
                "as 1024,4096"
            )
    head_dims = head_dims_from(options.head_dims)
    for head_dim in head_dims:
        if head_dim not in (16, 32, 64, 128, 256):
            raise UsageError(
                f"head-dims must be powers of 2 from 16 to 256, got {head_dim}: 64,128 is usual"
            )
    named = None if options.ops is None else words("ops", options.ops)
    return Plan(
        ops=ops_from(SUBJECTS if named is None else named),
        lengths=lengths,
        head_dims=head_dims,
        dtype=options.dtype,
        parts=tuple(parts),
        seconds=float(options.seconds),
        limits=Limits(most=options.rounds, seconds=2.0, least=3),
    )
