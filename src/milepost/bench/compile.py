"""Every shipped configuration of the GPU kernels, compiled on a machine that needs no GPU.

The ops are called as anybody calls them (`shipped.py` says which, and on what), and where Triton
would launch a kernel, it compiles it for the target instead: what is looked at is what is
launched, with its constants, blocks and options. Processes that never ran anything do it, each for
one target, as the library chooses by the GPU at hand, and with an empty cache.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import torch

from milepost import machine
from milepost.bench import compiled, resources, shipped
from milepost.errors import UsageError, unknown
from milepost.ops import triton as gpu
from milepost.ops.triton._kernels.operands import Constants

KIBIBYTE = 1024


@dataclass(frozen=True)
class Target:
    """A kind of GPU: as Triton names it, and what one block of threads may take at most."""

    backend: str
    architecture: int | str
    warp: int
    """Threads in a warp."""
    shared: int
    """Bytes of shared memory."""


# CUDA C++ Programming Guide, technical specifications by compute capability; CDNA 3 ISA, LDS
TARGETS = {
    "sm_80": Target("cuda", 80, 32, 163 * KIBIBYTE),
    "sm_90": Target("cuda", 90, 32, 227 * KIBIBYTE),
    "sm_100": Target("cuda", 100, 32, 227 * KIBIBYTE),
    "gfx942": Target("hip", "gfx942", 64, 64 * KIBIBYTE),
}


class Call(Protocol):
    """What launches kernels, and a name for it; a process of its own gets it pickled."""

    @property
    def label(self) -> str:
        """As it stands in messages."""

    def written(self) -> dict[str, Any]:
        """As JSON."""

    def launch(self) -> None:
        """Launch them."""


class Driver:
    """Stands where Triton expects the driver of a GPU, and has none."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def get_current_target(self) -> Any:
        """What to compile for."""
        return self.target

    def get_current_device(self) -> int:
        """The only one."""
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        """Nothing is run in it."""
        return 0

    def get_active_torch_device(self) -> torch.device:
        """Where tensors lie."""
        return torch.device("meta")


# Of a process of the pool: what its kernels were, and whether instructions are counted
_rows: list[dict[str, Any]] = []


def _begin(name: str, cache: str, compiling: bool, instructions: bool) -> None:
    """Make this process one that compiles for a target and launches nothing.

    Or one that only writes down what would be launched, without `compiling`.
    """
    os.environ.pop("TRITON_INTERPRET", None)
    os.environ["TRITON_CACHE_DIR"] = cache
    torch.set_num_threads(1)

    import triton.runtime.driver
    from triton.backends.compiler import GPUTarget
    from triton.runtime.jit import JITFunction

    target = TARGETS[name]
    triton.runtime.driver.set_active(
        Driver(GPUTarget(target.backend, target.architecture, target.warp))
    )
    # as a PyTorch for AMD says it
    torch.version.hip = "none" if target.backend == "hip" else None
    run = JITFunction.run

    def compile_instead(self: Any, *arguments: Any, grid: Any, warmup: bool, **given: Any) -> Any:
        row: dict[str, Any] = {"kernel": _name(self.__name__, given)}
        row |= _blocks(arguments, given)
        kernel = None
        try:
            if compiling:
                kernel = run(self, *arguments, grid=grid, warmup=True, **given)
                row |= resources.of(kernel, instructions=instructions)
        except Exception as error:  # of any of Triton's passes, or of the assembler
            row["failure"] = _first_lines(error)
        if row not in _rows:
            _rows.append(row)
        return kernel

    JITFunction.run = compile_instead


def _name(kernel: str, given: Mapping[str, Any]) -> str:
    """A kernel's name, and which part of its work it does where there are several."""
    part = given.get("PART", "all")
    return kernel if part == "all" else f"{kernel} ({part})"


def _blocks(arguments: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What of a launch is chosen; None where a kernel has no tiles."""
    const = next((one for one in arguments if isinstance(one, Constants)), None)
    tiles = {"M": given.get("M"), "N": given.get("N"), "step": None}
    if const is not None:
        D, M, N, step = (field.value for field in (const.D, const.M, const.N, const.STEP))
        # of narrower heads, all is multiplied at once, whatever the step
        tiles = {"M": M, "N": N, "step": step if step < D else None}
    return {**tiles, "warps": given.get("num_warps"), "stages": given.get("num_stages")}


def _first_lines(error: BaseException) -> str:
    """What an error says, shortened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:600]}"


def _compile(call: Call) -> list[dict[str, Any]]:
    """The kernels that a call launches."""
    _rows.clear()
    call.launch()
    return list(_rows)


Watch = Callable[[int, int, str], None]


def compile_calls(
    name: str,
    calls: Sequence[Call],
    *,
    jobs: int,
    compiling: bool = True,
    instructions: bool = True,
    watch: Watch | None = None,
) -> list[dict[str, Any]]:
    """The kernels of some calls, compiled for a target: a row for each, in the calls' order.

    Args:
        name: one of `TARGETS`.
        calls: what launches the kernels.
        jobs: how many processes.
        compiling: else the rows have no more than what would be launched.
        instructions: whether to count them, which takes a quarter of the time.
        watch: told how many calls are done, of how many, and the label of the last.
    """
    found: dict[int, list[dict[str, Any]]] = {}
    # a process that has imported Triton to interpret kernels could not compile them
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory(prefix="milepost-triton-") as cache,
        ProcessPoolExecutor(
            min(jobs, max(len(calls), 1)), context, _begin, (name, cache, compiling, instructions)
        ) as pool,
    ):
        running = {pool.submit(_compile, call): i for i, call in _longest_first(calls)}
        try:
            for future in as_completed(running):
                i = running[future]
                found[i] = future.result()
                if watch is not None:
                    watch(len(found), len(calls), f"{name}: {calls[i].label}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [
        {"target": name, **call.written(), **row}
        for i, call in enumerate(calls)
        for row in found[i]
    ]


def _longest_first(calls: Sequence[Call]) -> Iterator[tuple[int, Call]]:
    """Wide tiles take longest: with them at the end, one process would be left working alone."""
    return iter(sorted(enumerate(calls), key=lambda pair: -getattr(pair[1], "head_dim", 0)))


def check(targets: Sequence[str], ops: Sequence[str] | None, jobs: int) -> None:
    """That this can be asked for and done here, or a `UsageError`."""
    for name in targets:
        if name not in TARGETS:
            raise unknown("target", name, TARGETS)
    for op in ops or ():
        if op not in shipped.OPS:
            raise unknown("name for ops", op, shipped.OPS)
    if jobs < 1:
        raise UsageError(f"jobs must be at least 1, got {jobs}: leave it out for one for each core")
    reason = gpu.missing()
    if reason is not None:
        raise UsageError(f"kernels for GPUs are compiled by Triton, and {reason}")


def run(
    targets: Sequence[str],
    *,
    ops: Sequence[str] | None = None,
    which: str = "shipped",
    jobs: int | None = None,
    instructions: bool = True,
    watch: Watch | None = None,
) -> compiled.Record:
    """Compile what is shipped for some targets; what `compiled.py` describes.

    Args:
        targets: names in `TARGETS`.
        ops: names in `shipped.OPS`; None for all.
        which: "shipped", or "gate", a part of it, or "every" (`shipped.py`).
        jobs: how many processes; None for one for each core.
        instructions, watch: as in `compile_calls`.
    """
    jobs = machine.cores() if jobs is None else jobs
    check(targets, ops, jobs)
    import triton

    date = datetime.now(UTC).isoformat(timespec="seconds")
    rows = []
    for name in targets:
        rows += compile_calls(
            name,
            shipped.calls(which, name, ops),
            jobs=jobs,
            instructions=instructions,
            watch=watch,
        )
    return {
        "format": compiled.FORMAT,
        "kind": compiled.KIND,
        "date": date,
        "which": which,
        "targets": {name: _described(TARGETS[name]) for name in targets},
        "versions": machine.versions() | {"triton": triton.__version__},
        "source": machine.source(),
        "configurations": rows,
    }


def _described(target: Target) -> dict[str, Any]:
    """A target as JSON."""
    found: dict[str, Any] = {"shared": target.shared}
    if isinstance(target.architecture, int):
        found["assembler"] = f"ptxas {resources.assembler(target.architecture)}"
    return found
