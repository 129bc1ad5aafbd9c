"""What the GPU's own class asks of torch.cuda and of nvidia-smi."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from milepost.bench.gpu import device
from milepost.bench.gpu.device import Cuda


def test_the_gpu_is_asked_for_what_it_has(cuda, monkeypatch):
    calls: list[int] = []
    assert cuda.time(lambda: calls.append(1), 4) == pytest.approx(0.01)
    assert len(calls) == 4
    assert cuda.peak(lambda: "result") == (250, "result")
    assert cuda.memory == 2**37
    cuda.captured(lambda: calls.append(1))()
    assert len(calls) == 8  # three to warm up, one that is captured
    cuda.synchronise()
    ones = torch.ones
    monkeypatch.setattr(torch, "ones", lambda *size, device: ones(*size))
    assert cuda.works()
    monkeypatch.setattr(torch.cuda, "synchronize", broken)
    assert not cuda.works()
    said = "580.1, 1980 MHz, 1980 MHz, 3201 MHz, 700.00 W\n"
    ended = SimpleNamespace(stdout=said)
    monkeypatch.setattr(device.subprocess, "run", lambda *_, **__: ended)
    facts = cuda.facts()
    assert (facts["gpu"], facts["multiprocessors"]) == ("NVIDIA H200", 132)
    assert (facts["driver_version"], facts["clocks.sm"]) == ("580.1", "1980 MHz")
    ended.stdout = "no devices\n"
    assert cuda.facts()["driver_version"] is None
    monkeypatch.setattr(device.subprocess, "run", no_such_program)
    assert cuda.facts()["driver_version"] is None
    assert isinstance(device.gpu(), Cuda)
    assert set(device.versions()) == {"triton", "cuda", "cudnn"}


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("an illegal memory access was encountered")


def no_such_program(*_: Any, **__: Any) -> Any:
    raise FileNotFoundError("nvidia-smi")
