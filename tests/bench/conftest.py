"""Plans of a second, and native kernels that are the reference by another name."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from milepost.bench import check, measure
from milepost.bench.plan import Plan, plan
from milepost.ops import dispatch, native

SMALL: dict[str, Any] = {
    "ops": ["cope"],
    "lengths": "16,24",
    "head_dims": "8",
    "threads": "1",
    "caches": None,
    "backend": "reference",
    "isa": None,
    "dtype": "float32",
    "rounds": 2,
    "seconds": 0.0,
    "reference": False,
    "peak_memory": False,
    "memory_limit": 1.0,
}


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """Make a small plan, with changes; its checks and its warming up are small too."""
    monkeypatch.setattr(check, "QUERIES", 7)
    monkeypatch.setattr(check, "KEYS", 13)
    monkeypatch.setattr(measure, "WARM_ROUNDS", 1)
    return lambda **changes: plan(**SMALL | changes)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Native kernels by op, all of them the reference's own functions; a test may replace one."""
    in_use = ["x86-64-v4"]

    @contextmanager
    def use(name: str) -> Iterator[None]:
        in_use.append(name)
        yield
        in_use.pop()

    facts = {
        "missing": lambda: None,
        "isa": lambda: in_use[-1],
        "isas": lambda: ("x86-64-v3", "x86-64-v4"),
        "use": use,
    }
    for name, fact in facts.items():
        monkeypatch.setattr(native, name, fact)
    found = {
        op: SimpleNamespace(attend=module.attend, refusal=lambda **operands: None)
        for op in ("softmax", "cope", "forgetting")
        if (module := dispatch.implementation("reference", op))
    }
    monkeypatch.setitem(dispatch.MODULES, "native", found)
    return found
