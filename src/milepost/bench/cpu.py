"""A benchmark on the CPU: check, time, take the memory, and keep what there is after each step."""

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from milepost import machine
from milepost.bench import check, contenders, memory
from milepost.bench.cases import SUBJECTS, Case
from milepost.bench.contenders import LISTING, PLAIN, SDPA, X_TRANSFORMERS, Setting
from milepost.bench.measure import Clock, paired
from milepost.bench.plan import DTYPES, Plan
from milepost.bench.results import BOTH, FORMAT, FORWARD, MILEPOST, Record, ratio, timed
from milepost.files import write_json
from milepost.ops import native
from milepost.wording import counted

# How long a check and a measurement of memory take, beside the cases, for the time left
CHECK_SECONDS, PROCESS_SECONDS = 0.3, 4.0


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    done: int
    total: int
    share: float
    seconds_left: float | None
    doing: str


Watch = Callable[[Progress, str | None], None]


def run(
    plan: Plan, path: Path, *, watch: Watch | None = None, clock: Clock = time.perf_counter
) -> Record:
    """Do all that is planned; the record, which is in the file at `path` after each step too."""
    bench = _Bench(plan, path, watch or (lambda progress, news: None), clock)
    threads = torch.get_num_threads()
    try:
        with nullcontext() if plan.isa is None else native.use(plan.isa):
            return bench.run()
    finally:
        torch.set_num_threads(threads)


def label(case: Case) -> str:
    """A case in a line of text."""
    gates = f", {case.gates} gates" if len(SUBJECTS[case.op].gates) > 1 else ""
    threads = counted(case.threads, "thread")
    decode = "decoding, " if case.decode else ""
    return f"{case.op}{gates}, {decode}{threads}, D={case.head_dim}, T={case.keys}"


@dataclass(frozen=True)
class _Step:
    """Something to do, in a line of text, and how long it may take."""

    doing: str
    expected: float
    do: Callable[[], str | None]


class _Bench:
    def __init__(self, plan: Plan, path: Path, watch: Watch, clock: Clock) -> None:
        self.plan, self.path, self.watch, self.clock = plan, path, watch, clock
        self.dtype = DTYPES[plan.dtype]
        self.setting = Setting(plan.backend, self.dtype, plan.memory_limit, plan.reference)
        self.wrong: set[tuple[str, str, int, int, bool]] = set()
        self.shared_memory: dict[tuple[str, int, int], dict[str, Any]] = {}
        isa = None
        if plan.backend == "native":
            isa = plan.isa if plan.isa is not None else native.isa()
        self.record: Record = {
            "format": FORMAT,
            "kind": "cpu",
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "finished": False,
            "arguments": plan.written(),
            "machine": machine.describe(),
            "isa": isa,
            "versions": machine.versions(),
            "source": machine.source(),
            "checks": [],
            "cases": [],
            "memory": [],
        }

    def run(self) -> Record:
        write_json(self.path, self.record)
        steps = [*self.checks(), *self.timings(), *self.memories()]
        whole = sum(step.expected for step in steps)
        began, over = self.clock(), 0.0

        def progress(done: int, doing: str) -> Progress:
            elapsed, share = self.clock() - began, over / whole
            left = elapsed * (1 - share) / share if share else None
            return Progress(done, len(steps), share, left, doing)

        for done, step in enumerate(steps):
            self.watch(progress(done, step.doing), None)
            news = step.do()
            write_json(self.path, self.record)
            over += step.expected
            if news is not None:
                self.watch(progress(done + 1, step.doing), news)
        self.record["finished"] = True
        write_json(self.path, self.record)
        return self.record

    # checks

    def checks(self) -> Iterator[_Step]:
        """The plain kernel first, since every other op is compared with it."""
        plan = self.plan
        others = [op for op in plan.ops if op != "softmax"]
        for op in ("softmax", *others):
            for gates in SUBJECTS[op].gates:
                for threads in plan.threads:
                    for head_dim in plan.head_dims:
                        for decode in (False, True) if plan.caches else (False,):
                            case = Case(op, gates, head_dim, check.KEYS, threads, decode)
                            yield self.check_of(case)
        if "cope" in plan.ops:
            for name in (LISTING, X_TRANSFORMERS):
                yield self.check_of_baseline(name)

    def check_of(self, case: Case) -> _Step:
        def do() -> str:
            torch.set_num_threads(case.threads)
            given = check.odd_operands(case.op, case.gates, case.head_dim, self.dtype, case.decode)
            call = contenders.by(case.op, self.plan.backend)
            found = check.judge(call, case.op, given)
            if found["verdict"] != check.RIGHT:
                self.wrong.add(_key(case))
                if case.op == "softmax":
                    reason = f"the plain kernel was {found['verdict']} ({found['reason']})"
                    self.setting.left_out[PLAIN] = reason
            asked = case.op in self.plan.ops
            entry = {**_fields(case), "contender": MILEPOST, "optional": not asked, **found}
            return self.checked(label(case), entry)

        return _Step(f"checking {label(case)}", CHECK_SECONDS, do)

    def check_of_baseline(self, name: str) -> _Step:
        case = Case("cope", SUBJECTS["cope"].gates[0], self.plan.head_dims[0], check.QUERIES, 1)

        def call(**given: Any) -> Any:
            return contenders.build(name, case, self.setting, given).call(**given)

        def do() -> str:
            torch.set_num_threads(case.threads)
            given = check.square_operands("cope", case.gates, case.head_dim, self.dtype)
            found = check.judge(call, "cope", given)
            # published code in bf16 counts in bf16, and is timed with what that costs it
            in_bf16 = self.dtype == torch.bfloat16 and found["verdict"] == check.WRONG
            if found["verdict"] != check.RIGHT and not in_bf16:
                self.setting.left_out[name] = f"{found['verdict']}: {found['reason']}"
            return self.checked(
                name, {**_fields(case), "contender": name, "optional": True, **found}
            )

        return _Step(f"checking {name}", CHECK_SECONDS, do)

    def checked(self, name: str, entry: Record) -> str:
        self.record["checks"].append({"label": name, **entry})
        if entry["verdict"] == check.RIGHT:
            worst = max(entry["errors"], key=entry["errors"].__getitem__)
            return f"right: {name} (error up to {entry['errors'][worst]:.1e}, {worst})"
        said = "left out" if entry["optional"] else entry["verdict"].upper()
        return f"{said}: {name} ({entry['reason']})"

    # times

    def timings(self) -> Iterator[_Step]:
        for case in self.plan.cases():
            yield _Step(
                label(case),
                self.plan.expected_seconds(case),
                lambda case=case: self.time(case),  # type: ignore[misc]  # mypy infers no default
            )

    def time(self, case: Case) -> str | None:
        if _key(case) in self.wrong:
            return None
        torch.set_num_threads(case.threads)
        entry: Record = {"label": label(case), **_fields(case), "directions": {}, "left_out": {}}
        try:
            taking_part, entry["left_out"] = contenders.build_all(case, self.setting)
            if not taking_part:
                return f"left out: {label(case)} ({entry['left_out'][MILEPOST]})"
            for direction in (FORWARD,) if case.decode else (FORWARD, BOTH):
                calls: dict[str, Callable[[], object]] = {
                    name: one.forward if direction == FORWARD else one.forward_and_backward
                    for name, one in taking_part.items()
                }
                entry["directions"][direction] = timed(paired(calls, self.plan.limits, self.clock))
        except (RuntimeError, MemoryError) as error:
            entry["failure"] = f"{type(error).__name__}: {error}"
            return f"FAILED: {label(case)} ({entry['failure']})"
        finally:
            self.record["cases"].append(entry)
        ratios = [
            f"{direction} {found:.2f}× SDPA"
            for direction in entry["directions"]
            if (found := ratio(entry, direction, MILEPOST)) is not None
        ]
        return f"{label(case)}: {', '.join(ratios)}"

    # memory

    def memories(self) -> Iterator[_Step]:
        for case in self.plan.memory_cases():
            for name in contenders.names(case, self.setting)[0]:
                yield _Step(
                    f"memory of {name}, {label(case)}",
                    PROCESS_SECONDS + self.plan.expected_seconds(case) / 100,
                    lambda case=case, name=name: self.weigh(case, name),  # type: ignore[misc]  # mypy infers no default
                )

    def weigh(self, case: Case, name: str) -> str | None:
        if _key(case) in self.wrong or name in self.setting.left_out:
            return None
        # the same for every op
        shared = (name, case.head_dim, case.keys) if name in (SDPA, PLAIN) else None
        found = self.shared_memory.get(shared) if shared else None
        if found is None:
            found = memory.peak(
                name,
                case,
                backend=self.plan.backend,
                dtype=self.plan.dtype,
                isa=self.plan.isa,
            )
            if shared:
                self.shared_memory[shared] = found
        entry = {"label": label(case), **_fields(case), "contender": name, **found}
        self.record["memory"].append(entry)
        if "failure" in found:
            return f"FAILED: memory of {name}, {label(case)} ({found['failure']})"
        return f"{label(case)}: {name} needs {found['bytes'] / 2**20:.1f} MiB"


def _fields(case: Case) -> dict[str, Any]:
    return {**asdict(case), "queries": case.shape.S}


def _key(case: Case) -> tuple[str, str, int, int, bool]:
    """What a verdict holds for: every length."""
    return case.op, case.gates, case.head_dim, case.threads, case.decode
