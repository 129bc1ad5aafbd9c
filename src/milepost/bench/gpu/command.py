"""What `milepost bench gpu` and `python -m milepost.bench.gpu` do: one function, two command lines.

The second is for a machine that has PyTorch and Triton and not much else: it needs no tyro.
"""

import os
import sys
import threading
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from milepost.bench import write
from milepost.bench.gpu import plan as planning
from milepost.bench.gpu import table
from milepost.bench.gpu.plan import GRACE_SECONDS, PARTS, Options, Plan
from milepost.bench.table import Sheet
from milepost.errors import UsageError
from milepost.files import write_json, write_text

STOPPED, HUNG = 130, 3


@dataclass(frozen=True)
class Request:
    """What is asked for."""

    options: Options = field(default_factory=Options)
    tune: bool = False
    dry_run: bool = False
    out: Path | None = None
    json: Path | None = None
    resume: Path | None = None


def main(request: Request) -> int:
    """Plan, tune or measure; 1 if something was wrong or broke."""
    if request.resume is not None and (request.json is not None or request.tune):
        other = "json" if request.json is not None else "tune"
        raise UsageError(
            f"resume goes on with a file of results, got {request.resume} with {other}: leave one "
            "of the two out"
        )
    plan = planning.plan(request.options)
    if request.resume is not None:
        from milepost.bench.gpu import results

        results.load(request.resume)
    if request.tune:
        from milepost.bench.gpu import tune as tuning

        tuning.jobs(plan)
    if request.dry_run:
        dry_run(plan, tune=request.tune)
        return 0
    return tune(request, plan) if request.tune else measure(request, plan)


def dry_run(plan: Plan, *, tune: bool = False) -> None:
    """Print what would be done, and how long it should take."""
    rows, spent = [], 0.0
    if tune:
        from milepost.bench.gpu import tune as tuning

        title = "What --tune would do, and the seconds that it should take"
        heads, left = ["op", "D", "dtype", "candidates", "seconds"], 1
        for job in tuning.jobs(plan):
            seconds = tuning.expected(job)
            fits = spent + seconds <= plan.seconds
            spent += seconds if fits else 0.0
            cells = [
                job["op"],
                str(job["head_dim"]),
                job["dtype"],
                str(len(tuning.all_of(job, {}))),
            ]
            rows.append([*cells, f"{seconds:.0f}" if fits else f"{seconds:.0f} (does not fit)"])
    else:
        title = "What would be measured, and the seconds that it should take"
        heads, left = ["part", "what", "steps", "seconds", "of them fit", "seconds"], 2
        for part, expected in plan.expected_parts().items():
            fitting: list[float] = []
            for seconds in expected:
                if spent + sum(fitting) + seconds <= plan.seconds:
                    fitting.append(seconds)
            spent += sum(fitting)
            counts = [str(len(expected)), f"{sum(expected):.0f}", str(len(fitting))]
            rows.append([part, PARTS[part], *counts, f"{sum(fitting):.0f}"])
    below = [
        f"About {spent:.0f} s in all, of {plan.seconds:.0f} s that it may take; it ends by itself, "
        f"and a process that hangs is ended {GRACE_SECONDS:.0f} s later.",
        "The seconds are those of a simple model: assumed rates, and a time for what is compiled. "
        "Nothing was measured.",
    ]
    write.print_all(table.with_notes([Sheet(title, heads, rows, left)], below))


def measure(request: Request, plan: Plan) -> int:
    """Measure on this machine's GPU."""
    from milepost.bench.gpu import results, run, worker
    from milepost.bench.gpu.device import LostError, gpu
    from milepost.ops import triton

    device = gpu()
    if (missing := triton.missing()) is not None:
        raise UsageError(f"bench gpu measures the Triton kernels, but {missing}")
    record = None if request.resume is None else results.load(request.resume)
    path = request.resume
    if path is None:
        name = device.facts()["gpu"].removeprefix("NVIDIA ").split()[0].lower()
        path = place(request, name)
    began = time.monotonic()
    watchdog = watched(plan.seconds + GRACE_SECONDS, path)
    try:
        record = run.run(
            plan,
            path,
            device,
            pool=worker.in_processes,
            clock=time.perf_counter,
            record=record,
            watch=said,
        )
    except KeyboardInterrupt:
        print(f"stopped; `milepost bench table {path}` shows what there is", file=sys.stderr)
        return STOPPED
    except LostError as error:
        left = plan.seconds - (time.monotonic() - began)
        said(f"the GPU was lost ({error}): another process goes on with {path}")
        again(replace(request, json=None, resume=path), max(left, 1.0))
    finally:
        watchdog.cancel()
    assert record is not None
    shown(record, path)
    failed = list(results.failures(record))
    for failure in failed:
        print(failure, file=sys.stderr)
    return 1 if failed else 0


def place(request: Request, name: str, ending: str = "") -> Path:
    """Where the results go."""
    date = datetime.now(UTC).date().isoformat()
    return write.place(
        date=date,
        kernels=f"{name}{ending}",
        out=request.out,
        file=request.json,
        device="gpu",
    )


def shown(record: dict[str, object], path: Path) -> None:
    """Print the tables that fit a screen; write all of them and the plots beside the results."""
    write.print_all(table.terminal(record, cells=False))
    for written in (path, *drawings(record, path)):
        print(written)


def drawings(record: dict[str, object], path: Path) -> list[Path]:
    """Write the tables as Markdown and, where there is matplotlib, the plots; the paths."""
    texts = {f"{path.stem}.md": table.markdown(record)}
    if find_spec("matplotlib") is not None:
        texts |= {f"{path.stem}-{name}.svg": svg for name, svg in table.plots(record).items()}
    for name, text in texts.items():
        write_text(path.parent / name, text)
    return [path.parent / name for name in texts]


def tune(request: Request, plan: Plan) -> int:
    """Try blocks for the kernels, and write the winners."""
    from milepost.bench.gpu import tune as tuning
    from milepost.bench.gpu import worker
    from milepost.bench.gpu.device import gpu

    device = gpu()
    name = device.facts()["gpu"].removeprefix("NVIDIA ").split()[0].lower()
    path = place(request, name, "-blocks")
    watchdog = watched(plan.seconds + GRACE_SECONDS, path)
    try:
        record = tuning.run(
            plan,
            device,
            pool=worker.in_processes,
            clock=time.perf_counter,
            save=lambda found: write_json(path, found),
            watch=said,
        )
    finally:
        watchdog.cancel()
    print(tuning.text(record))
    print(path)
    return 0 if record["finished"] and not record["failures"] else 1


_began = time.monotonic()


def said(news: str) -> None:
    """A line of progress, on standard error, with the time since the start."""
    from milepost.report.live import duration

    print(f"[{duration(time.monotonic() - _began)}] {news}", file=sys.stderr, flush=True)


def watched(seconds: float, path: Path) -> threading.Timer:
    """End this process after so many seconds, whatever it waits for: a kernel may never end."""

    def end() -> None:
        print(
            f"ended after {seconds:.0f} s, amid a step that did not end; {path} holds what was "
            f"measured before, and --resume {path} goes on behind that step",
            file=sys.stderr,
            flush=True,
        )
        os._exit(HUNG)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer


def again(request: Request, seconds: float) -> None:
    """Begin anew in this process's place: the GPU is as new for another one."""
    sys.stdout.flush()
    sys.stderr.flush()
    words = command_line(replace(request, options=replace(request.options, seconds=seconds)))
    # what belongs to the GPU's driver must be closed, so that it gives the memory back
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.execv(sys.executable, [sys.executable, "-m", "milepost.bench.gpu", *words])


def command_line(request: Request) -> list[str]:
    """A request as the words that `python -m milepost.bench.gpu` takes."""
    words = []
    for name, value in asdict(request.options).items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    for name in ("out", "json", "resume"):
        if (path := getattr(request, name)) is not None:
            words += [f"--{name}", str(path)]
    return [
        *words,
        *(f"--{n.replace('_', '-')}" for n in ("tune", "dry_run") if getattr(request, n)),
    ]
