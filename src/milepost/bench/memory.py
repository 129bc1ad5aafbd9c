"""The peak memory of one forward + backward, measured in a process of its own.

In one process a peak is remembered, and memory once freed is used again, so that the second
measurement would tell little. The child runs the same call on a few tokens first, so that thread
pools and libraries are there; makes the operands; then takes its resident memory, makes the call,
and takes the high-water mark. What it reports:

    bytes      the peak above the resident memory before the call
    results    of these, the outputs and the gradients, which any attention has to return
    how        VmHWM (Linux, set back before the call) or ru_maxrss (the maximum so far elsewhere)

The rest, `bytes − results`, is what the op keeps and scratches on; per token it is a constant
where memory is linear.
"""

import json
import resource
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from milepost.bench.cases import Case
from milepost.errors import UsageError

WARM_KEYS = 16
STATUS = Path("/proc/self/status")
PEAK_RESET = Path("/proc/self/clear_refs")


def peak(name: str, case: Case, *, backend: str, dtype: str, isa: str | None) -> dict[str, Any]:
    """What a contender of a case needs; `failure` instead where the process did not end well."""
    request = {
        "name": name,
        "case": asdict(case),
        "backend": backend,
        "dtype": dtype,
        "isa": isa,
    }
    ended = subprocess.run(
        [sys.executable, "-m", "milepost.bench.memory", json.dumps(request)],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode < 0:
        return {"failure": f"killed by signal {-ended.returncode}"}
    if ended.returncode:
        return {"failure": (ended.stderr.strip().splitlines() or ["no message"])[-1]}
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answer


def measure(name: str, case: Case, *, backend: str, dtype: str, isa: str | None) -> dict[str, Any]:
    """The same in this process, which should have done nothing else."""
    import torch

    from milepost.bench.cases import operands
    from milepost.bench.contenders import Setting, build
    from milepost.ops import native

    setting = Setting(backend, getattr(torch, dtype), memory_limit=0)
    torch.set_num_threads(case.threads)
    with nullcontext() if isa is None else native.use(isa):
        few = replace(case, keys=min(WARM_KEYS, case.keys))
        given = operands(few.op, few.gates, few.shape, setting.dtype)
        outputs, _ = build(name, few, setting, given).forward_and_backward()
        given = operands(case.op, case.gates, case.shape, setting.dtype)
        contender = build(name, case, setting, given)
        sizes = [(*given["query"].shape[:3], *output.shape[3:]) for output in outputs]
        contender.directions = tuple(
            torch.randn(size).to(output.dtype) for size, output in zip(sizes, outputs, strict=True)
        )
        how = _set_back()
        before = _resident(how)
        outputs, gradients = contender.forward_and_backward()
        most = _most(how)
    results = sum(tensor.nbytes for tensor in (*outputs, *gradients))
    return {"bytes": most - before, "results": results, "how": how}


def _set_back() -> str:
    """Let the high-water mark begin at what is resident now, where the system can do that."""
    try:
        PEAK_RESET.write_text("5")
    except OSError:
        return "ru_maxrss"
    return "VmHWM"


def _resident(how: str) -> int:
    return _status("VmRSS") if how == "VmHWM" else _most(how)


def _most(how: str) -> int:
    if how == "VmHWM":
        return _status("VmHWM")
    # in bytes on macOS, in KiB elsewhere
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(name: str) -> int:
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"{STATUS} has no {name}")


def main() -> None:
    """Measure what the parent asks for, and print the answer."""
    request = json.loads(sys.argv[1])
    request["case"] = Case(**request["case"])
    try:
        print(json.dumps(measure(**request)))
    except (UsageError, RuntimeError, MemoryError) as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
