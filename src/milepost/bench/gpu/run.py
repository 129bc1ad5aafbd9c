"""A benchmark on a GPU, within its time: what it has at the end of a step, it keeps.

A step that is expected to take longer than what is left is not begun; shorter ones that follow may
be. Where a kernel leaves the GPU unusable for this process, `LostError` says so once the record has
been written, and another process goes on from there.
"""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from milepost import machine
from milepost.bench import check
from milepost.bench.baselines import MissingError
from milepost.bench.cases import Operands
from milepost.bench.contenders import MILEPOST, PLAIN, SDPA
from milepost.bench.gpu import baselines, model, worker
from milepost.bench.gpu.baselines import PACKAGES, Runner
from milepost.bench.gpu.cells import Cell
from milepost.bench.gpu.device import Device, LostError, versions
from milepost.bench.gpu.plan import CHECKS, DIRECTIONS, MEMORY, MODEL, MODEL_SECONDS, MODELS, Plan
from milepost.bench.gpu.results import FORMAT, KIND, timed, wrong
from milepost.bench.gpu.timing import Entrant, Taken, paired, reason
from milepost.bench.measure import Clock, Limits
from milepost.bench.results import FORWARD, Record, ratio
from milepost.files import write_json
from milepost.report.live import duration

CEILINGS = "ceilings"
GRAPH = "forward, as a graph"
PRODUCT, COPIED = 8192, 2**31
QUICK = Limits(most=2, seconds=1.0, least=2)
# Where the checks leave off for what comes after them, as a share of the time
CHECKS_SHARE = 0.45

Watch = Callable[[str], None]


def new_record(plan: Plan, device: Device) -> Record:
    """The record of a run that begins."""
    return {
        "format": FORMAT,
        "kind": KIND,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "finished": False,
        "arguments": plan.written(),
        "machine": {**machine.describe(), **device.facts()},
        "versions": {**machine.versions(), **versions()},
        "source": machine.source(),
        "ceilings": {},
        "checks": [],
        "cases": [],
        "memory": [],
        "models": [],
        "not_reached": [],
        "failures": [],
        "done": [],
        "under_way": None,
        "spent": {},
    }


def run(
    plan: Plan,
    path: Path,
    device: Device,
    *,
    pool: worker.Pool,
    clock: Clock,
    record: Record | None = None,
    watch: Watch = lambda news: None,
) -> Record:
    """Do what the time suffices for; the record, which is in the file after each step too.

    With a `record`, go on where it ends.
    """
    bench = Bench(plan, path, device, pool, clock, record or new_record(plan, device), watch)
    return bench.run()


@dataclass(frozen=True)
class Step:
    """Something to do, and the seconds that it may take."""

    part: str
    label: str
    expected: float
    do: Callable[[], str | None]

    @property
    def key(self) -> str:
        """What the record calls it."""
        return f"{self.part}: {self.label}"


class Bench:
    """A run under way."""

    def __init__(
        self,
        plan: Plan,
        path: Path,
        device: Device,
        pool: worker.Pool,
        clock: Clock,
        record: Record,
        watch: Watch,
    ) -> None:
        self.plan, self.path, self.device, self.pool = plan, path, device, pool
        self.clock, self.record, self.watch = clock, record, watch
        self.dtype = worker.DTYPES[plan.dtype]
        self.began = clock()
        self.baseline: tuple[int, Entrant] | None = None

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.plan.seconds - (self.clock() - self.began)

    def run(self) -> Record:
        """All steps, as far as the time goes."""
        record = self.record
        record["finished"], record["not_reached"] = False, []
        if record["under_way"] is not None:
            self.broke(record["under_way"], "the process ended amid it")
        for step in self.steps():
            if step.key in record["done"]:
                continue
            if step.expected > self.left:
                record["not_reached"].append(
                    f"{step.key} (about {step.expected:.0f} s, {max(self.left, 0):.0f} s left)"
                )
                continue
            self.take(step)
        record["finished"] = True
        self.save()
        return record

    def take(self, step: Step) -> None:
        """Do a step, and keep what it found."""
        record, begun = self.record, self.clock()
        record["under_way"] = step.key
        self.save()
        news: str | None = None
        try:
            news = step.do()
        except LostError as error:
            self.broke(step.key, f"the GPU was lost: {error}")
            self.save()
            raise
        except Exception as error:
            self.broke(step.key, reason(error))
            news = f"FAILED: {step.key} ({reason(error)})"
            if not self.device.works():
                self.save()
                raise LostError(reason(error)) from error
        else:
            record["under_way"] = None
            record["done"].append(step.key)
        spent = record["spent"].get(step.part, 0.0) + self.clock() - begun
        record["spent"][step.part] = round(spent, 2)
        self.save()
        self.device.free()
        if news is not None:
            self.watch(f"{news} ({duration(max(self.left, 0))} left)")

    def broke(self, key: str, why: str) -> None:
        """Note a step that is over without an end."""
        self.record["failures"].append(f"{key}: {why}")
        self.record["done"].append(key)
        self.record["under_way"] = None

    def save(self) -> None:
        """Write the record."""
        write_json(self.path, self.record)

    def steps(self) -> Iterator[Step]:
        """Every step of the plan, in its order."""
        yield Step(CEILINGS, "product and copy", 1.0, self.ceilings)
        for part in self.plan.parts:
            if part == CHECKS:
                yield Step(part, "every op", self.plan.expected_checks(), self.checks)
            elif part in (MODEL, MODELS):
                for encoding, keys in self.plan.models(part):
                    yield Step(
                        part,
                        f"{encoding}, T={keys}",
                        MODEL_SECONDS,
                        lambda encoding=encoding, keys=keys: self.train(encoding, keys),  # type: ignore[misc]  # mypy infers no default
                    )
            else:
                do = self.weigh if part == MEMORY else self.time
                for cell in self.plan.cells(part):
                    yield Step(
                        part,
                        cell.label,
                        self.plan.expected(cell, part),
                        lambda cell=cell, do=do, part=part: do(cell, part),  # type: ignore[misc]  # mypy infers no default
                    )

    # what the machine can do

    def ceilings(self) -> str:
        """The rate of a product of matrices, and of a copy."""
        large = self.device.name == "cuda"
        size, copied = (PRODUCT, COPIED) if large else (64, 2**12)
        with torch.device(self.device.name):
            one, other = (torch.randn(size, size).to(self.dtype) for _ in range(2))
            source = torch.randn(copied // 4)
        target = torch.empty_like(source)
        calls = {
            "product": Entrant(lambda: lambda: one @ other),
            "copy": Entrant(lambda: lambda: target.copy_(source)),
        }
        taken = self.paired(calls, Limits(most=5, seconds=5.0, least=3))
        found: dict[str, Any] = {"left_out": taken.left_out, "seconds": taken.seconds}
        said = []
        if "product" in taken.seconds:
            found["flops"] = 2 * size**3 / statistics.median(taken.seconds["product"])
            said.append(f"{found['flops'] / 1e12:.0f} TFLOP/s")
        if "copy" in taken.seconds:
            # each byte is read and written
            found["bytes"] = 2 * source.nbytes / statistics.median(taken.seconds["copy"])
            said.append(f"{found['bytes'] / 1e12:.2f} TB/s")
        self.record["ceilings"] = found
        return f"a product of {size}³ and a copy: {', '.join(said)}"

    # checks

    def checks(self) -> str:
        """Every op, in processes of their own."""
        jobs = self.plan.jobs()
        counted = {check.RIGHT: 0}

        def ended(job: worker.Job, found: list[worker.Finding], why: str | None) -> None:
            if job["kind"] == "compile":
                return
            contender = job.get("contender", MILEPOST)
            for finding in found:
                entry = {
                    "label": f"{worker.label(job)}, {finding['gates']}, {finding['shape']}",
                    "op": job["op"],
                    "contender": contender,
                    "dtype": job["dtype"],
                    "head_dim": job["head_dim"],
                    "optional": job["kind"] == "baseline",
                    **finding,
                }
                self.record["checks"].append(entry)
                counted[entry["verdict"]] = counted.get(entry["verdict"], 0) + 1
                if entry["verdict"] != check.RIGHT and not entry["optional"]:
                    self.watch(f"{entry['verdict'].upper()}: {entry['label']} ({entry['reason']})")
            if why is not None:
                if job["kind"] == "baseline":
                    self.record["checks"].append(self.unchecked(job, why))
                else:
                    self.record["failures"].append(f"check of {worker.label(job)}: {why}")
                    self.watch(f"check of {worker.label(job)}: {why}")
            else:
                self.watch(f"checked {worker.label(job)}")
            self.save()

        self.pool(jobs, min(self.left, CHECKS_SHARE * self.plan.seconds), ended)
        return ", ".join(f"{count} {verdict}" for verdict, count in counted.items())

    def unchecked(self, job: worker.Job, why: str) -> Record:
        """A baseline whose check did not come to its end: it may hang, and is not run here."""
        return {
            "label": worker.label(job),
            "op": job["op"],
            "contender": job["contender"],
            "dtype": job["dtype"],
            "head_dim": job["head_dim"],
            "optional": True,
            "gates": None,
            "shape": None,
            "verdict": check.REFUSED,
            "errors": {},
            "tolerance": None,
            "reason": why,
            "differs": None,
        }

    def barred(self, name: str) -> str | None:
        """Why a published kernel is not run in this process; None if it may be."""
        if name not in PACKAGES:
            return None
        if (why := baselines.missing(name)) is not None:
            return why
        entries = [one for one in self.record["checks"] if one["contender"] == name]
        if not entries:
            return "was not checked in a process of its own: let the run have its part 'checks'"
        refused = [one for one in entries if one["verdict"] == check.REFUSED]
        return refused[0]["reason"] if refused else None

    # times

    def paired(self, entrants: dict[str, Entrant], limits: Limits) -> Taken:
        """Rounds on this device."""
        return paired(entrants, self.device, limits, self.clock, self.plan.least_seconds)

    def build(self, cell: Cell, given: Operands) -> tuple[dict[str, Runner], dict[str, str]]:
        """Everyone who takes part in a cell, and why others do not."""
        runners: dict[str, Runner] = {}
        left_out: dict[str, str] = {}
        for name in baselines.names(cell):
            why = self.barred(name)
            if why is None:
                try:
                    runners[name] = baselines.build(name, cell, given, self.device)
                    continue
                except MissingError as error:
                    why = str(error)
                except Exception as error:
                    why = reason(error)
            left_out[name] = why
        return runners, left_out

    def time(self, cell: Cell, part: str) -> str:
        """All directions of a cell."""
        entry: Record = {
            **cell.fields(),
            "part": part,
            "dtype": self.plan.dtype,
            "wrong": wrong(self.record, cell.op, cell.head_dim, self.plan.dtype),
            "directions": {},
            "sdpa": {},
            "left_out": {},
        }
        self.record["cases"].append(entry)
        given = cell.operands(self.dtype, self.device.name)
        runners, entry["left_out"] = self.build(cell, given)
        for direction in (FORWARD,) if cell.decode else DIRECTIONS:
            entrants = {
                name: one.entrant(direction)
                for name, one in runners.items()
                if name not in entry["left_out"]
            }
            if SDPA in entrants:
                entrants[SDPA] = self.best_sdpa(runners[SDPA], direction, entry)
            taken = self.paired(entrants, self.plan.limits)
            entry["directions"][direction] = timed(taken.seconds, taken.calls)
            for name, why in taken.left_out.items():
                entry["left_out"][name] = f"{direction}: {why}"
            del entrants
        if cell.decode:
            self.time_graphs(entry, runners)
        said = [
            f"{direction} {found:.2f}× SDPA"
            for direction in entry["directions"]
            if (found := ratio(entry, direction, MILEPOST)) is not None
        ]
        if MILEPOST in entry["left_out"]:
            raise RuntimeError(f"milepost: {entry['left_out'][MILEPOST]}")
        return f"{cell.label}: {', '.join(said)}" + " (WRONG)" * (entry["wrong"] is not None)

    def best_sdpa(self, runner: Runner, direction: str, entry: Record) -> Entrant:
        """The fastest of PyTorch's backends; PyTorch's own choice where none runs alone."""
        entrants = {
            name: runner.entrant(direction, baselines.sdpa_backend(name))
            for name in self.device.sdpa_backends
        }
        taken = self.paired(entrants, QUICK)
        medians = {name: statistics.median(found) for name, found in taken.seconds.items() if found}
        chosen = min(medians, key=lambda name: medians[name]) if medians else None
        entry["sdpa"][direction] = {
            "chosen": chosen,
            "seconds": medians,
            "left_out": taken.left_out,
        }
        return runner.entrant(direction) if chosen is None else entrants[chosen]

    def time_graphs(self, entry: Record, runners: dict[str, Runner]) -> None:
        """Decoding once more as CUDA graphs: what the kernels take without Python around them."""
        chosen = entry["sdpa"].get(FORWARD, {}).get("chosen")

        def entrant(name: str) -> Entrant:
            runner = runners[name]
            plain = Entrant(lambda: self.device.captured(runner.forward))
            if name != SDPA or chosen is None:
                return plain
            return Entrant(plain.prepare, baselines.sdpa_backend(chosen))

        entrants = {
            name: entrant(name)
            for name in (MILEPOST, SDPA, PLAIN)
            if name in runners and name not in entry["left_out"]
        }
        taken = self.paired(entrants, self.plan.limits)
        entry["directions"][GRAPH] = timed(taken.seconds, taken.calls)
        for name, why in taken.left_out.items():
            entry["left_out"][f"{name} as a graph"] = why

    # memory

    def weigh(self, cell: Cell, part: str) -> str:
        """The peak of forward + backward, of each contender."""
        given = cell.operands(self.dtype, self.device.name)
        runners, left_out = self.build(cell, given)
        said = []
        for name, runner in runners.items():
            entry: Record = {**cell.fields(), "contender": name}
            self.record["memory"].append(entry)
            try:
                # first without looking: libraries take what they keep
                runner.forward_and_backward()
                most, found = self.device.peak(runner.forward_and_backward)
                entry["bytes"] = most
                entry["results"] = sum(x.nbytes for part in found for x in part)
                del found
                said.append(f"{name} {most / 2**20:.0f} MiB")
                continue
            except Exception as error:
                entry["left_out"] = reason(error)
                if not self.device.works():
                    raise LostError(f"{name}: {reason(error)}") from error
            self.device.free()  # not before: the error holds on to what was allocated
            said.append(f"{name}: {entry['left_out']}")
        for name, why in left_out.items():
            self.record["memory"].append({**cell.fields(), "contender": name, "left_out": why})
        return f"memory, {cell.label}: {', '.join(said)}"

    # a model

    def train(self, encoding: str, keys: int) -> str:
        """Steps of a model with an encoding, and of the same by PyTorch's attention."""
        if self.baseline is None or self.baseline[0] != keys:
            self.baseline = None
            self.device.free()
            call, _ = self.stepping(None, keys)
            self.baseline = keys, Entrant(lambda: call)
        own, parameters = self.stepping(encoding, keys)
        entrants = {SDPA: self.baseline[1], MILEPOST: Entrant(lambda: own)}
        taken = self.paired(entrants, self.plan.limits)
        entry: Record = {
            **model.written(encoding, keys, parameters),
            "seconds": timed(taken.seconds, taken.calls),
            "left_out": taken.left_out,
        }
        self.record["models"].append(entry)
        if MILEPOST in taken.left_out:
            raise RuntimeError(taken.left_out[MILEPOST])
        per_second = entry["batch"] * keys / entry["seconds"][MILEPOST]["median"]
        return f"{entry['label']}: {per_second:,.0f} tokens/s"

    def stepping(self, encoding: str | None, keys: int) -> tuple[Callable[[], object], int]:
        """A step of the model; a test puts a smaller one in its place."""
        return model.step(encoding, keys, self.device.name)
