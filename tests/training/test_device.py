"""Devices: those that the ops run on, and a reason where one is refused."""

import pytest
import torch

from milepost.errors import UsageError
from milepost.training.device import choose


@pytest.mark.parametrize("name", ["cpu", "cpu:0"])
def test_the_cpu_by_name(name: str) -> None:
    assert choose(name).type == "cpu"


def test_without_a_gpu_the_cpu_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose(None).type == "cpu"


@pytest.mark.parametrize(
    ("name", "reason"), [("meta", "no values"), ("mps", "fp64"), ("gpu", "gpu"), ("xpu", "tested")]
)
def test_what_cannot_run_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=f"device '{name}' cannot be used here .*{reason}"):
        choose(name)
