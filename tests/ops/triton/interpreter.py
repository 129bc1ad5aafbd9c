"""Triton's interpreter as these tests use it: with a GPU's roundings, in a third of the time."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest


def mend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the monkeypatch is undone."""
    from triton import language as tl
    from triton.runtime import interpreter

    convert = interpreter._convert_float

    def converted(data: Any, before: Any, after: Any, rounding: Any) -> Any:
        """It cuts off fp32 to bf16, which a GPU rounds to the nearest, and to even ones."""
        if (before, after) == (tl.float32, tl.bfloat16):
            bits = np.ascontiguousarray(data).view(np.uint32)
            rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
            return np.where(np.isnan(data), 0x7FC0, rounded).astype(np.uint16)
        return convert(data, before, after, rounding)

    patched: set[str] = set()
    call = interpreter.InterpretedFunction.__call__

    def called(self: Any, *arguments: Any, **constants: Any) -> Any:
        """It patches triton.language again at every call of a function within a kernel."""
        if self.fn.__module__ in patched:
            return self.rewrite()(*arguments, **constants)
        patched.add(self.fn.__module__)
        return call(self, *arguments, **constants)

    monkeypatch.setattr(interpreter, "_convert_float", converted)
    monkeypatch.setattr(interpreter.InterpretedFunction, "__call__", called)
    # It would look at every sum of integers, which are small here
    builder = interpreter.interpreter_builder
    monkeypatch.setattr(builder, "options", replace(builder.options, sanitize_overflow=False))
