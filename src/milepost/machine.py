"""Where a figure was measured: processor, versions, and the state of the source."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import milepost
from milepost.ops import native

CPU_INFO = Path("/proc/cpuinfo")


def describe() -> dict[str, Any]:
    """The processor, what of it is used, and how many processes were at work already."""
    return {
        "processor": processor(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": cores(),
        "load": round(os.getloadavg()[0], 2),
        "isas": list(native.isas()),
        "sdpa_capability": torch.backends.cpu.get_cpu_capability(),
    }


def processor() -> str:
    """The processor's name, as its maker writes it, where the system tells."""
    try:
        for line in CPU_INFO.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model"):
                return " ".join(value.split())
    except OSError:
        if platform.system() == "Darwin":
            asked = _said("sysctl", "-n", "machdep.cpu.brand_string")
            if asked:
                return asked
    return platform.processor() or platform.machine()


def kernels() -> str | None:
    """The instruction set that the kernels for CPUs use; None where there are none."""
    return native.isa()


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Of everything that the figures depend on."""
    return {
        "milepost": milepost.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def source() -> dict[str, Any]:
    """The commit that ran, and whether files differ from it; null outside a checkout."""
    package = Path(milepost.__file__).resolve().parent
    top = _said("git", "-C", str(package), "rev-parse", "--show-toplevel")
    # a package that is merely installed below some other project's checkout has no commit
    if top is None or Path(top).resolve() / "src" / "milepost" != package:
        return {"commit": None, "dirty": None}
    commit = _said("git", "-C", top, "rev-parse", "HEAD")
    changed = _said("git", "-C", top, "status", "--porcelain")
    return {"commit": commit, "dirty": None if changed is None else bool(changed)}


def commit() -> str | None:
    """The commit that ran, with -dirty if files differ from it; None outside a checkout."""
    found = source()
    return f"{found['commit']}-dirty" if found["dirty"] else found["commit"]


def _said(*command: str) -> str | None:
    """What a command prints; None where it fails or does not exist."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return ended.stdout.strip() if ended.returncode == 0 else None
