"""The baselines compute what the op does, also where none of them is installed."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from milepost.bench.cases import TYPICAL, Shape, operands
from milepost.bench.gpu import baselines, worker
from milepost.bench.gpu.cells import Cell
from milepost.bench.gpu.device import Cpu


def test_published_kernels_are_called_as_they_want_to_be(kernels, monkeypatch):
    from milepost import ops

    def theirs(q: Any, k: Any, v: Any, g: Any) -> Any:
        turned = [x.transpose(1, 2) for x in (q, k, v)]
        out = ops.forgetting_attention(*turned, g.transpose(1, 2), backend="reference")
        return out.transpose(1, 2)

    def fox(q: Any, k: Any, v: Any, log_fgate: Any, *, head_first: bool) -> Any:
        assert head_first
        return ops.forgetting_attention(q, k, v, log_fgate, backend="reference")

    def stick(q: Any, k: Any, v: Any) -> Any:
        return ops.stick_breaking_attention(q, k, v, backend="reference")

    modules = {
        "fla.ops.forgetting_attn": SimpleNamespace(parallel_forgetting_attn=theirs),
        "forgetting_transformer": SimpleNamespace(forgetting_attention=fox),
        "stickbreaking_attention.sb_attn": SimpleNamespace(sb_attn=stick),
    }
    monkeypatch.setattr(baselines, "import_module", modules.__getitem__)
    monkeypatch.setattr(baselines, "missing", lambda name: None)
    for op, name in (("forgetting", "fla"), ("forgetting", "fox-official")):
        job = {"kind": "baseline", "op": op, "contender": name, "dtype": "float32", "head_dim": 16}
        (found,) = worker.findings(job, Cpu())
        assert found["verdict"] == "right", found
    job |= {"op": "stick_breaking", "contender": "stick-official"}
    (found,) = worker.findings(job, Cpu())
    assert found["verdict"] == "right", found
    monkeypatch.setattr(baselines, "import_module", lambda name: SimpleNamespace())
    (found,) = worker.findings(job, Cpu())
    assert found["verdict"] == "refused"


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("op", baselines.FLEXIBLE)
def test_flex_says_what_the_op_does(op):
    from milepost.bench.contenders import by

    shape = Shape(2, 2, 2, 48, 48, 16, rows=5)
    given = operands(op, TYPICAL, shape, torch.float32)
    mask = baselines.causal_blocks(48, "cpu")
    with torch.no_grad():
        actual = baselines.flex_call(op, flex_attention, mask)(**given)
        expected = by(op, "reference")(**given)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


def test_the_mask_is_the_one_that_pytorch_makes():
    ours = baselines.causal_blocks(48, "cpu")
    theirs = create_block_mask(baselines.causal, None, None, 48, 48, device="cpu", BLOCK_SIZE=16)
    assert ours.to_dense().equal(theirs.to_dense())
    assert ours.shape == theirs.shape
    for name in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "full_q_num_blocks"):
        assert getattr(ours, name).equal(getattr(theirs, name)), name


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what PyTorch imports to compile
def test_a_compiled_backward_may_run_twice(cuda, monkeypatch):
    from torch._functorch import config

    compiled: list[Any] = []
    monkeypatch.setattr(torch, "compile", lambda f, dynamic: compiled.append(dynamic) or f)
    given = operands("cope", TYPICAL, Shape(1, 2, 2, 16, 16, 8, rows=5), torch.float32)
    cell = Cell("cope", TYPICAL, 8, 16)
    with config.patch(donated_buffer=True):
        runner = baselines.build("listing-compiled", cell, given, cuda)
        assert compiled == [False]
        assert not config.donated_buffer
    call = runner.backward()
    assert all(one.equal(other) for one, other in zip(call(), call(), strict=True))
