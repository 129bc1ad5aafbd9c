"""Checks run in processes of their own, so that a lost device ends only one of them."""

from typing import Any

import torch

from milepost.bench.gpu import results, worker


def test_workers_are_processes(planned, monkeypatch):
    found = []
    job = {"kind": "op", "op": "softmax", "dtype": "float32", "head_dim": 16, "timed": False}
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    worker.in_processes([job], 120.0, lambda *ended: found.append(ended))
    ((asked, findings, why),) = found
    assert asked == job
    assert why is None
    if not torch.cuda.is_available():
        assert findings[0]["verdict"] == "refused"  # the kernels want a GPU
    worker.in_processes([{**job, "op": "none"}], 120.0, lambda *ended: found.append(ended))
    assert found[-1][2].startswith("KeyError")
    worker.in_processes([job], 0.0, lambda *ended: found.append(ended))
    assert found[-1][1:] == ([], "not reached")
    worker.in_processes([job], 120.0, lambda *ended: found.append(ended), limit=1.0)
    assert found[-1][1:] == ([], "stopped after 1 s")


def test_other_bits_in_a_second_run_are_reported(kernels, started):
    right, calls = kernels["softmax"].attend, []

    def shaky(**operands: Any) -> Any:
        calls.append(None)
        return right(**operands) * (1 + 1e-6 * len(calls))

    kernels["softmax"].attend = shaky
    record = started(ops="softmax", lengths="16", head_dims="16", parts="checks")
    assert any("other bits of output" in line for line in results.failures(record))
