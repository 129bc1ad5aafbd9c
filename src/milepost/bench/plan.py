"""Which cases a benchmark runs, from the words of its command line."""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from milepost.bench.cases import BATCH, HEADS, SUBJECTS, Case
from milepost.bench.measure import Limits
from milepost.errors import UsageError, unknown
from milepost.machine import cores
from milepost.ops import native

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
MEASURED = ("native", "reference")

# Memory is measured at so many lengths, none above this one where there is a choice
MEMORY_LENGTHS, LONGEST_FOR_MEMORY = 3, 8192

# Multiplications a second of a usual core: only where the time left is estimated from
SPEED = 2e10


@dataclass(frozen=True)
class Plan:
    """What is measured, and how."""

    ops: tuple[str, ...]
    lengths: tuple[int, ...]
    head_dims: tuple[int, ...]
    threads: tuple[int, ...]
    caches: tuple[int, ...]
    """Lengths of the caches to decode with; none for no decoding."""
    backend: str
    isa: str | None
    """The variant of the native kernels; None for the one in use anyway."""
    dtype: str
    limits: Limits
    reference: bool
    peak_memory: bool
    memory_limit: int

    def cases(self) -> list[Case]:
        """Every case, op by op, the short ones first."""
        return [
            Case(op, gates, head_dim, keys, threads, decode)
            for decode, lengths in ((False, self.lengths), (True, self.caches))
            for op in self.ops
            for gates in SUBJECTS[op].gates
            for threads in self.threads
            for head_dim in self.head_dims
            for keys in lengths
        ]

    def memory_cases(self) -> list[Case]:
        """The cases of which the peak memory is taken too: typical gates, the most threads."""
        fitting = [length for length in self.lengths if length <= LONGEST_FOR_MEMORY]
        chosen = sorted(fitting or [min(self.lengths)])[-MEMORY_LENGTHS:]
        return [
            Case(op, SUBJECTS[op].gates[0], head_dim, keys, max(self.threads))
            for op in self.ops
            for head_dim in self.head_dims
            for keys in chosen
            if self.peak_memory
        ]

    def expected_seconds(self, case: Case) -> float:
        """A guess at the time of a case, good enough to weigh cases against each other."""
        shape = case.shape
        pairs = shape.S * shape.T / (1 if case.decode else 2)
        both_products, with_backward, taking_part = 2, 1 if case.decode else 3.5, 3
        work = BATCH * HEADS * pairs * case.head_dim * both_products * with_backward
        a_round = taking_part * work / (SPEED * case.threads)
        return max(a_round * self.limits.fewest, min(a_round * self.limits.most, 2 * self.budget))

    @property
    def budget(self) -> float:
        """The seconds for one direction of a case."""
        return self.limits.seconds

    def written(self) -> dict[str, Any]:
        """The plan as JSON."""
        return {
            "ops": list(self.ops),
            "lengths": list(self.lengths),
            "head_dims": list(self.head_dims),
            "threads": list(self.threads),
            "caches": list(self.caches),
            "backend": self.backend,
            "isa": self.isa,
            "dtype": self.dtype,
            "rounds": self.limits.most,
            "seconds": self.limits.seconds,
            "reference": self.reference,
            "peak_memory": self.peak_memory,
            "memory_limit": self.memory_limit,
            "batch": BATCH,
            "heads": HEADS,
        }


def words(argument: str, text: str) -> tuple[str, ...]:
    """`a,b,c` as its words, each once."""
    found = [word.strip() for word in text.split(",")]
    if not all(found):
        raise UsageError(
            f"{argument} must be words separated by commas, got {text!r}: leave none of them empty"
        )
    return tuple(dict.fromkeys(found))


def numbers(argument: str, text: str, *, example: str) -> tuple[int, ...]:
    """`512,1024` as whole numbers from 1 on, in ascending order."""
    found = set()
    for word in words(argument, text):
        if not word.isdecimal() or int(word) < 1:
            raise UsageError(
                f"{argument} must be whole numbers from 1 on, separated by commas, got {word!r}: "
                f"write them as {example}"
            )
        found.add(int(word))
    return tuple(sorted(found))


def threads_from(text: str) -> tuple[int, ...]:
    """`1,all` as numbers of threads that this machine has cores for."""
    available = cores()
    every = [str(available) if word == "all" else word for word in words("threads", text)]
    found = numbers("threads", ",".join(every), example="1,all")
    if found[-1] > available:
        raise UsageError(
            f"threads must be at most the cores that this process may use, {available}, "
            f"got {found[-1]}: 'all' stands for that number"
        )
    return found


def ops_from(names: Iterable[str]) -> tuple[str, ...]:
    """Names of ops that can be measured, each once."""
    for name in (names := tuple(names)):
        if name not in SUBJECTS:
            raise unknown("name for ops", name, SUBJECTS)
    return names


def head_dims_from(text: str) -> tuple[int, ...]:
    """Head dimensions; one axis is a constant where gates never saturate, so 2 at least."""
    found = numbers("head-dims", text, example="64,128")
    if found[0] < 2:
        raise UsageError(f"head-dims must be at least 2, got {found[0]}: write them as 64,128")
    return found


def limits_from(rounds: int, seconds: float) -> Limits:
    """Rounds and seconds of a case."""
    if rounds < 1:
        raise UsageError(f"rounds must be at least 1, got {rounds}: 40 is usual")
    if not (0 <= seconds < math.inf):
        raise UsageError(f"seconds must be a number from 0 on, got {seconds}: 20 is usual")
    return Limits(most=rounds, seconds=seconds)


def available_memory() -> int:
    """Half of the memory that is free now, in bytes; 4 GiB where the system does not tell."""
    try:
        with open("/proc/meminfo") as file:
            found = dict(line.split(":", 1) for line in file)
        return int(found["MemAvailable"].split()[0]) * 1024 // 2
    except (OSError, KeyError):
        return 4 * 2**30


def memory_limit_from(gibibytes: float | None) -> int:
    """What baselines that write out all pairs may take, in bytes."""
    if gibibytes is None:
        return available_memory()
    if not (0 <= gibibytes < sys.maxsize):
        raise UsageError(
            f"memory-limit must be a number of GiB from 0 on, got {gibibytes}: leave it out for "
            "half of the memory that is free"
        )
    return round(gibibytes * 2**30)


def check_backend(backend: str, isa: str | None) -> None:
    """The backend can be measured here, or a `UsageError`."""
    if backend not in MEASURED:
        raise unknown("backend", backend, MEASURED)
    if backend == "native" and (reason := native.missing()) is not None:
        raise UsageError(
            f"backend must be one that runs here, got 'native', but {reason}: --backend reference "
            "measures plain PyTorch"
        )
    if isa is None:
        return
    if backend != "native":
        raise UsageError(
            f"isa chooses a variant of the native kernels, got {isa!r} with backend "
            f"{backend!r}: leave one of the two out"
        )
    if isa not in native.isas():
        raise unknown("isa", isa, native.isas())


def plan(
    *,
    ops: Sequence[str] | None,
    lengths: str,
    head_dims: str,
    threads: str,
    caches: str | None,
    backend: str,
    isa: str | None,
    dtype: str,
    rounds: int,
    seconds: float,
    reference: bool,
    peak_memory: bool,
    memory_limit: float | None,
) -> Plan:
    """The plan that a command line asks for, checked."""
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    chosen = ops_from(SUBJECTS if ops is None else ops)
    sizes = numbers("lengths", lengths, example="512,1024")
    check_backend(backend, isa)
    return Plan(
        ops=chosen,
        lengths=sizes,
        head_dims=head_dims_from(head_dims),
        threads=threads_from(threads),
        caches=() if caches is None else numbers("caches", caches, example="1024,8192"),
        backend=backend,
        isa=isa,
        dtype=dtype,
        limits=limits_from(rounds, seconds),
        reference=reference,
        peak_memory=peak_memory,
        memory_limit=memory_limit_from(memory_limit),
    )
