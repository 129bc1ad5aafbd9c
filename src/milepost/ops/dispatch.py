"""Which implementation of an op runs: the one place that imports a backend.

A backend is a folder beside this file with one module per op, each with a function `attend` that
takes the op's operands, checked, and does the work. A fused backend's module also has
`refusal(**operands) -> str | None`, the reason why it cannot take these operands, and imports
everywhere: what its machine lacks is such a reason. Adding a fused kernel is adding a file: `auto`
finds it by its name. What several ops share is in modules whose names begin with an underscore.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any

import torch
from torch import Tensor

from milepost.errors import UsageError, unknown
from milepost.ops import native, triton

FUSED = ("triton", "native")  # fastest first; `auto` falls back to the reference
BACKENDS = ("auto", "reference", *FUSED)
REFERENCE = f"{__package__}.reference"
DEVICES = {"triton": "cuda", "native": "cpu"}
UNKNOWN_TO_REFERENCE = ("skip", "approximate")  # it leaves nothing out and rounds as it must


def modules(backend: str) -> dict[str, Any]:
    """The modules of a backend's ops by their names; none where it has no folder."""
    folder = f"{__package__}.{backend}"
    if find_spec(folder) is None:
        return {}
    names = [module.name for module in iter_modules(import_module(folder).__path__)]
    ops = [name for name in names if not name.startswith("_")]
    return {name: import_module(f"{folder}.{name}") for name in ops}


# Found once, at import: torch.compile cannot trace an import
MODULES = {backend: modules(backend) for backend in ("reference", *FUSED)}


def implementation(backend: str, op: str) -> Any:
    """The module of `op` in `backend`, or None where there is none."""
    return MODULES[backend].get(op)


def backends(op: str) -> tuple[str, ...]:
    """The fused backends that have a kernel for `op`."""
    return tuple(name for name in FUSED if implementation(name, op) is not None)


def _interpreted(backend: str) -> bool:
    return backend == "triton" and triton.interpreted()


def refusal(backend: str, op: str, operands: dict[str, Any]) -> str | None:
    """Why `backend` cannot run `op` on these operands; None if it can."""
    device = operands["query"].device.type
    if device != DEVICES[backend] and not (device == "cpu" and _interpreted(backend)):
        return f"needs {DEVICES[backend]} tensors, got {device}"
    module = implementation(backend, op)
    if module is None:
        return f"has no kernel for {op}_attention in this release"
    return module.refusal(**operands)


def choose(op: str, backend: str, operands: dict[str, Any]) -> Callable[..., Any]:
    """The function to call: the named backend's, or with `auto` the fastest that accepts."""
    if backend == "auto":
        for name in FUSED:
            # An interpreted kernel runs where it is named: it is there to check its numbers
            if not _interpreted(name) and refusal(name, op, operands) is None:
                return implementation(name, op).attend
        # torch.compile cannot trace a warning
        if operands["query"].device.type == "cpu" and not torch.compiler.is_compiling():
            native.warn_if_missing()
    elif backend in FUSED:
        reason = refusal(backend, op, operands)
        if reason is not None:
            raise UsageError(
                f"{backend} refused: {reason}; backend='auto' takes the fastest that accepts"
            )
        return implementation(backend, op).attend
    elif backend != "reference":
        raise unknown("backend", backend, BACKENDS)
    return implementation("reference", op).attend


def run(op: str, backend: str | Callable[..., Any], **operands: Any) -> Any:
    """Run `op` on checked operands, outside autocast: an op chooses its own precision.

    A function in place of a backend's name gets the op's name and the operands: so
    `milepost.look` learns what an encoding's op, which may be a method, comes to.
    """
    if callable(backend):
        return backend(op, **operands)
    attend = choose(op, backend, operands)
    if attend.__module__.startswith(REFERENCE):
        for name in UNKNOWN_TO_REFERENCE:
            operands.pop(name, None)
    query: Tensor = operands["query"]
    if not torch.is_autocast_enabled(query.device.type):
        return attend(**operands)
    with torch.autocast(query.device.type, enabled=False):
        return attend(**operands)
