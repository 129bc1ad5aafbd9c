"""The whole run on a CPU in place of a GPU, so that no line of it is first executed on one.

Most of it with kernels that are the reference by another name, and small sizes; once with the
kernels themselves, interpreted.
"""

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from milepost.bench import check
from milepost.bench.cases import Shape
from milepost.bench.gpu import baselines, cells, model, plan, results, run, tune, worker
from milepost.bench.gpu.device import Cpu, Cuda
from milepost.bench.gpu.plan import Options, Plan
from milepost.bench.measure import Limits
from milepost.ops import dispatch, triton

from .stand_ins import OPS, Stream, reference, tiny_step, written_out


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Triton kernels by op, all of them the reference; a test may replace one."""
    monkeypatch.setattr(triton, "interpreted", lambda: True)
    monkeypatch.setattr(triton, "missing", lambda: None)
    found = {op: reference(op) for op in OPS}
    monkeypatch.setitem(dispatch.MODULES, "triton", found)
    return found


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that a CPU gets through."""
    for module in (cells, worker, tune):
        monkeypatch.setattr(module, "HEADS", 2, raising=False)
    monkeypatch.setattr(cells, "TOKENS", 32)
    monkeypatch.setattr(cells, "CACHED", 64)
    monkeypatch.setattr(worker, "LONG", Shape(1, 2, 2, 24, 24, 16, rows=5))
    monkeypatch.setattr(worker, "SQUARE", Shape(1, 2, 2, 32, 32, 16, rows=5))
    monkeypatch.setattr(worker, "MODEL", Shape(1, 2, 2, 16, 16, 16, rows=5))
    monkeypatch.setattr(worker, "DECODE", Shape(1, 2, 2, 1, 16, 16, rows=5))
    monkeypatch.setattr(tune, "CHECKED", Shape(1, 2, 2, 24, 24, 16, rows=5))
    monkeypatch.setattr(tune, "CHECKED_CACHE", Shape(1, 2, 2, 1, 32, 16, rows=5))
    monkeypatch.setattr(check, "QUERIES", 7)
    monkeypatch.setattr(check, "KEYS", 13)
    monkeypatch.setattr(baselines, "MASK_BLOCK", 16)
    monkeypatch.setattr(plan, "TABLE_LENGTHS", (16, 32))
    monkeypatch.setattr(plan, "OTHER_LENGTH", 16)
    monkeypatch.setattr(plan, "ENCODINGS", ("cope", "none"))
    monkeypatch.setattr("torch.nn.attention.flex_attention.flex_attention", written_out)
    baselines._flex.cache_clear()


@pytest.fixture
def planned() -> Any:
    """A small plan, with changes."""

    def make(**changes: Any) -> Plan:
        options = Options(lengths="16,32,48", head_dims="16,32", rounds=1, dtype="float32")
        made = plan.plan(dataclasses.replace(options, **changes))
        return dataclasses.replace(
            made,
            caches=(32,),
            memory_lengths=(16,),
            model_lengths=(8,),
            least_seconds=1e-9,
            limits=Limits(most=1, seconds=0.0, least=1),
        )

    return make


@pytest.fixture
def started(planned: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a small plan, in this process."""
    monkeypatch.setattr(model, "TOKENS", 16)
    monkeypatch.setattr(model, "step", tiny_step)

    def start(clock: Any = lambda: 0.0, record: Any = None, **changes: Any) -> Any:
        fake = Cpu()
        path = tmp_path / "result.json"
        found = run.run(
            planned(**changes),
            path,
            fake,
            pool=worker.here(fake),
            clock=clock,
            record=record,
        )
        assert results.load(path) == json.loads(json.dumps(found))
        return found

    return start


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """The GPU's own class, over a torch.cuda that computes on the CPU."""
    facts = SimpleNamespace(
        name="NVIDIA H200", multi_processor_count=132, total_memory=2**37, major=9, minor=0
    )
    replaced = {
        "Event": Stream,
        "Stream": Stream,
        "CUDAGraph": Stream,
        "current_stream": Stream,
        "stream": Stream,
        "graph": lambda graph: graph,
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "reset_peak_memory_stats": lambda: None,
        "memory_allocated": lambda: 100,
        "max_memory_allocated": lambda: 350,
        "get_device_properties": lambda index: facts,
        "is_available": lambda: True,
    }
    for name, one in replaced.items():
        assert hasattr(torch.cuda, name)
        monkeypatch.setattr(torch.cuda, name, one)
    return Cuda()
