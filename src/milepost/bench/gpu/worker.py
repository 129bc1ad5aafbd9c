"""Checks in processes of their own, several at once.

Most of a check is the compiling of kernels, which one core does for each. The kernels come into
Triton's cache on disk, from where the process that times takes them: so a job also runs the shapes
that are timed, once, in small. And where a kernel does what it must not, or never ends, that is
the end of one job and not of the run.

    {"kind": "op", ...}         an op: outputs and gradients against the reference in fp64, on
                                three shapes and with every kind of gates; and whether a second
                                run gives the same bits
    {"kind": "baseline", ...}   the same of a contender, on a shape that it takes
    {"kind": "compile", ...}    no check: what a cell's contender compiles
    {"kind": "blocks", ...}     a candidate of the tuning: whether it compiles and is right

A job prints a line for each finding, so that what it had found stays when it is stopped.
"""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from milepost.bench import check
from milepost.bench.baselines import MissingError
from milepost.bench.cases import TYPICAL, Operands, Shape, operands
from milepost.bench.contenders import REFERENCE, Contender, by, parts
from milepost.bench.gpu import baselines
from milepost.bench.gpu.cells import HEADS, Cell, gates_of
from milepost.bench.gpu.device import Cpu, Cuda, Device
from milepost.bench.gpu.timing import reason
from milepost.machine import cores

MARK = "finding: "
# Workers share one GPU, whose memory the reference needs on the long shape
MOST_WORKERS = 16
SQUARE = Shape(1, 4, 4, 256, 256, 64)
# Triton compiles anew for a number that is no multiple of 16. So the long shape, whose last tile is
# not full, compiles what the cells run, and the warm ones what the model and decoding run.
LONG = Shape(1, HEADS, HEADS, 1008, 1008, 64)
MODEL = Shape(2, 12, 12, 256, 256, 64)
DECODE = Shape(2, HEADS, HEADS, 1, 1024, 64)
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}

Job = dict[str, Any]
Finding = dict[str, Any]
Ended = Callable[[Job, list[Finding], str | None], None]
Pool = Callable[[list[Job], float, Ended], None]


def findings(job: Job, device: Device) -> Iterator[Finding]:
    """Do a job in this process."""
    kinds = {
        "op": _op,
        "baseline": _baseline,
        "compile": _compile,
        "blocks": _blocks,
    }
    return kinds[job["kind"]](job, device)


def label(job: Job) -> str:
    """A job in a line of text."""
    what = job.get("contender", job["op"])
    return f"{what}, {job['dtype']}, D={job['head_dim']}"


def in_processes(jobs: list[Job], seconds: float, ended: Ended, limit: float = 240.0) -> None:
    """Do jobs, several at once; `ended` hears of each, with the reason where one did not finish.

    None is begun after `seconds`, and none runs longer than `limit` seconds.
    """
    import time

    over = time.monotonic() + seconds
    lock = Lock()

    def one(job: Job) -> None:
        left = min(limit, over - time.monotonic())
        found, why = ([], "not reached") if left < 1 else _in_process(job, left)
        with lock:
            ended(job, found, why)

    workers = max(1, min(MOST_WORKERS, cores(), len(jobs)))
    with ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(one, job) for job in jobs]:
            future.result()


def here(device: Device) -> Pool:
    """The same in this process, one job after the other: for tests."""

    def pool(jobs: list[Job], seconds: float, ended: Ended) -> None:
        for job in jobs:
            found: list[Finding] = []
            why = None
            try:
                found.extend(findings(job, device))
            except Exception as error:
                why = reason(error)
            ended(job, found, why)

    return pool


def _in_process(job: Job, seconds: float) -> tuple[list[Finding], str | None]:
    command = [sys.executable, "-m", "milepost.bench.gpu.worker", json.dumps(job)]
    # the other cores have workers of their own
    alone = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    try:
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env=os.environ | alone,
        )
    except subprocess.TimeoutExpired as error:
        # bytes here, whatever `text` says
        printed = error.stdout or b""
        text = printed.decode(errors="replace") if isinstance(printed, bytes) else printed
        return _read(text), f"stopped after {seconds:.0f} s"
    found = _read(ended.stdout)
    if ended.returncode < 0:
        return found, f"killed by signal {-ended.returncode}"
    if ended.returncode:
        return found, (ended.stderr.strip().splitlines() or ["no message"])[-1][:300]
    return found, None


def _read(printed: str) -> list[Finding]:
    found = []
    for line in printed.splitlines():
        if line.startswith(MARK):
            try:
                found.append(json.loads(line.removeprefix(MARK)))
            except ValueError:  # cut off where the process was stopped
                continue
    return found


def _op(job: Job, device: Device) -> Iterator[Finding]:
    op, dtype, head_dim = job["op"], DTYPES[job["dtype"]], job["head_dim"]
    call = by(op, baselines.BACKEND)
    for gates in gates_of(op):
        for name in ("odd", "decoding", "long") if job["timed"] else ("odd",):
            if name == "long":
                shape = replace(LONG, D=head_dim)
                given = operands(op, gates, shape, dtype, seed=2, device=device.name)
            else:
                drawn = check.odd_operands(op, gates, head_dim, dtype, name == "decoding")
                given = {one: _to(x, device) for one, x in drawn.items()}
            found = check.judge(call, op, given)
            differs = _differs(call, given) if found["verdict"] == check.RIGHT else None
            yield {"gates": gates, "shape": name, "differs": differs, **found}
            del given
            device.free()
    if job["timed"]:
        for shape in (replace(DECODE, D=head_dim), *((MODEL,) if head_dim == MODEL.D else ())):
            given = operands(op, TYPICAL, shape, dtype, device=device.name)
            contender = Contender(call, given)
            contender.forward()
            if shape.S > 1:
                contender.forward_and_backward()
        device.synchronise()


def _to(given: Any, device: Device) -> Any:
    return given.to(device.name) if isinstance(given, Tensor) else given


def _differs(call: Callable[..., Any], given: Operands) -> list[str]:
    """The results that a second run gives other bits of."""
    first, second = check.results(call, given), check.results(call, given)
    return [name for name, tensor in first.items() if not tensor.equal(second[name])]


def _baseline(job: Job, device: Device) -> Iterator[Finding]:
    """A baseline computes the same op: its outputs and gradients, in the op's own order."""
    name, op, dtype = job["contender"], job["op"], DTYPES[job["dtype"]]
    tolerance = check.TOLERANCE[dtype]
    empty = {"gates": TYPICAL, "shape": "square", "differs": None, "tolerance": tolerance}
    shape = replace(SQUARE, D=job["head_dim"])
    given = operands(op, TYPICAL, shape, dtype, seed=2, device=device.name)
    cell = Cell(op, TYPICAL, job["head_dim"], SQUARE.T)
    exact = {n: x.double() if isinstance(x, Tensor) else x for n, x in given.items()}
    reference = Contender(by(op, REFERENCE), exact)
    expected, expected_grads = reference.forward_and_backward()
    try:
        runner = baselines.build(name, cell, given, device)
        assert reference.directions is not None

        def turned(tensor: Tensor) -> Tensor:
            return tensor.transpose(1, 2) if runner.time_before_heads else tensor

        # it may return less than the op does, and in other dtypes
        outputs = parts(runner.forward())
        runner.directions = tuple(
            turned(x).to(output.dtype).contiguous()
            for x, output in zip(reference.directions, outputs, strict=False)
        )
        results, grads = runner.forward_and_backward()
    except MissingError as error:
        yield {**empty, "verdict": check.REFUSED, "errors": {}, "reason": str(error)}
        return
    names = ["output", *(f"gradient of {one}" for one in ("query", "key", "value"))]
    pairs = zip(names, (results[0], *grads[:3]), (expected[0], *expected_grads[:3]), strict=True)
    errors = {
        n: check.relative_error(turned(actual.detach()), right.detach())
        for n, actual, right in pairs
    }
    wrong = [n for n, error in errors.items() if not error <= tolerance]
    yield {
        **empty,
        "verdict": check.WRONG if wrong else check.RIGHT,
        "errors": {n: error if error < float("inf") else None for n, error in errors.items()},
        "reason": f"{', '.join(wrong)}: up to {max(errors.values()):.1e}" if wrong else None,
    }


def _compile(job: Job, device: Device) -> Iterator[Finding]:
    cell = Cell(job["op"], TYPICAL, job["head_dim"], job["keys"])
    given = cell.operands(DTYPES[job["dtype"]], device.name)
    runner = baselines.build(job["contender"], cell, given, device)
    runner.forward()
    runner.forward_and_backward()
    device.synchronise()
    yield from ()


def _blocks(job: Job, device: Device) -> Iterator[Finding]:
    from milepost.bench.gpu.tune import CHECKED, CHECKED_CACHE, within

    op, dtype = job["op"], DTYPES[job["dtype"]]
    for forced in job["candidates"]:
        shapes = [CHECKED] if set(forced) - {"decode"} else []
        shapes += [CHECKED_CACHE] if "decode" in forced else []
        worst: Finding = {"verdict": check.RIGHT, "reason": None}
        with within(forced):
            for gates, shape in itertools.product(gates_of(op)[:2], shapes):
                size = replace(shape, D=job["head_dim"])
                given = operands(op, gates, size, dtype, seed=2, device=device.name)
                found = check.judge(by(op, baselines.BACKEND), op, given)
                if found["verdict"] != check.RIGHT:
                    worst = found
                    break
        yield {"blocks": forced, "verdict": worst["verdict"], "reason": worst["reason"]}
        if not device.works():
            return


def main() -> None:
    """Do the job that the parent asks for, and print what is found."""
    job = json.loads(sys.argv[1])
    device = Cuda() if torch.cuda.is_available() else Cpu()
    try:
        for finding in findings(job, device):
            print(MARK + json.dumps(finding), flush=True)
    except Exception as error:
        sys.exit(reason(error))


if __name__ == "__main__":
    main()
