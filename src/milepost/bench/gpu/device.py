"""The GPU: its clock, its memory and its name; and a CPU in its place, for the tests.

A GPU works through a queue while the CPU fills it. So a measurement is that of many calls between
two events in the queue, and the CPU's own time for a call counts only where the GPU has to wait
for it, as it would for any other caller.
"""

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from milepost.bench.measure import Clock
from milepost.errors import UsageError

Call = Callable[[], object]


class LostError(Exception):
    """The device answers no more; a new process may use it again."""


class Cuda:
    """The current CUDA device."""

    name = "cuda"
    sdpa_backends = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION")
    compiles = True
    """Whether torch.compile is worth its time here."""

    def synchronise(self) -> None:
        """Wait until all is done."""
        torch.cuda.synchronize()

    def time(self, call: Call, repeats: int) -> float:
        """Seconds for one call, over so many."""
        begin, end = (_event() for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / repeats

    def captured(self, call: Call) -> Call:
        """A call as a CUDA graph: its kernels without the CPU's part."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch has no annotation
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        return graph.replay

    def peak(self, call: Call) -> tuple[int, Any]:
        """The most that a call allocates above what there was, in bytes, and its result."""
        self.free()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        result = call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before, result

    def free(self) -> None:
        """Give unused memory back."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    @property
    def memory(self) -> int:
        """All of it, in bytes."""
        return int(torch.cuda.get_device_properties(0).total_memory)

    def works(self) -> bool:
        """Whether it still answers: after an illegal access it never does."""
        try:
            torch.cuda.synchronize()
            return int(torch.ones(1, device="cuda").sum()) == 1
        except RuntimeError:
            return False

    def facts(self) -> dict[str, Any]:
        """What it is, and the clocks at which it runs now."""
        properties = torch.cuda.get_device_properties(0)
        asked = ("driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit")
        return {
            "gpu": properties.name,
            "multiprocessors": properties.multi_processor_count,
            "memory": int(properties.total_memory),
            "capability": f"{properties.major}.{properties.minor}",
            **dict(zip(asked, _smi(asked), strict=True)),
        }


class Cpu:
    """A CPU in place of a GPU, so that every line of the run can be tested without one."""

    name = "cpu"
    sdpa_backends = ("FLASH_ATTENTION", "MATH")
    compiles = False
    memory = 2**33

    def __init__(self, clock: Clock = time.perf_counter) -> None:
        self.clock = clock

    def synchronise(self) -> None:
        """Nothing is queued."""

    def time(self, call: Call, repeats: int) -> float:
        """Seconds for one call, over so many."""
        began = self.clock()
        for _ in range(repeats):
            call()
        return (self.clock() - began) / repeats

    def captured(self, call: Call) -> Call:
        """The call itself."""
        return call

    def peak(self, call: Call) -> tuple[int, Any]:
        """No allocator counts here: 0, and the result."""
        return 0, call()

    def free(self) -> None:
        """Nothing is kept."""

    def works(self) -> bool:
        """It does."""
        return True

    def facts(self) -> dict[str, Any]:
        """What stands in place of a GPU."""
        return {"gpu": "none (a CPU in its place)", "multiprocessors": 1, "memory": self.memory}


Device = Cuda | Cpu


def gpu() -> Cuda:
    """The GPU, or a `UsageError`."""
    if not torch.cuda.is_available():
        raise UsageError(
            "bench gpu needs a GPU that PyTorch can use, found none (torch.cuda.is_available() is "
            f"False with PyTorch {torch.__version__}): run it on a machine with one, or look at "
            "what it would do with --dry-run"
        )
    return Cuda()


def versions() -> dict[str, str | None]:
    """Of what a figure on a GPU depends on, beside `milepost.machine.versions`."""
    found: dict[str, str | None] = {
        "triton": _installed("triton"),
        "cuda": torch.version.cuda,
        "cudnn": None,
    }
    with suppress(RuntimeError):
        number = _cudnn() if torch.cuda.is_available() else None
        found["cudnn"] = None if number is None else str(number)
    return found


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # no annotation


def _cudnn() -> int | None:
    found: int | None = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]  # the same
    return found


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _smi(asked: tuple[str, ...]) -> list[str | None]:
    """What nvidia-smi answers; None where it does not."""
    command = ["nvidia-smi", f"--query-gpu={','.join(asked)}", "--format=csv,noheader", "--id=0"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return [None] * len(asked)
    answers = ended.stdout.strip().split(", ")
    return list(answers) if len(answers) == len(asked) else [None] * len(asked)
