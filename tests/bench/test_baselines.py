import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from milepost import ops
from milepost.bench import baselines
from milepost.bench.cases import NEVER, TYPICAL, Shape, operands
from milepost.bench.check import results


@pytest.fixture(params=[TYPICAL, NEVER])
def given(request):
    found = operands("cope", request.param, Shape(2, 3, 3, 19, 19, 8, rows=6), torch.float64)
    return {name: operand.double() for name, operand in found.items()}


def assert_is_the_reference(call, given):
    expected = results(lambda **them: ops.cope_attention(**them, backend="reference"), given)
    actual = results(call, given)
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(actual[name], tensor, rtol=0, atol=1e-12)


def test_the_listing_is_the_op(given):
    assert_is_the_reference(baselines.listing, given)


def test_sdpa_is_plain_attention(given):
    plain = {name: given[name] for name in ("query", "key", "value")}
    expected = ops.softmax_attention(**plain, backend="reference")
    torch.testing.assert_close(baselines.sdpa(**plain), expected, rtol=0, atol=1e-12)
    newest = plain | {"query": plain["query"][:, :, -1:]}
    torch.testing.assert_close(baselines.sdpa(**newest), expected[:, :, -1:], rtol=0, atol=1e-12)


class Theirs(nn.Module):
    """What x-transformers' class does with queries and masked logits."""

    def __init__(self, dim, heads, max_pos):
        super().__init__()
        self.pos_emb = nn.Parameter(torch.zeros(max_pos, dim))

    def forward(self, query, attn_logits):
        counted = attn_logits.sigmoid().flip(-1).cumsum(-1).flip(-1)
        position = counted.clamp(max=self.pos_emb.shape[0] - 1)
        lower = position.floor()
        at_whole = query @ self.pos_emb.mT
        upper = at_whole.gather(-1, position.ceil().long())
        return torch.lerp(at_whole.gather(-1, lower.long()), upper, position - lower)


def test_x_transformers_is_called_as_it_wants_to_be(given, monkeypatch):
    monkeypatch.setitem(sys.modules, "x_transformers", SimpleNamespace())
    module = SimpleNamespace(CoPE=Theirs)
    monkeypatch.setitem(sys.modules, "x_transformers.x_transformers", module)
    assert_is_the_reference(baselines.XTransformers(rows=6, head_dim=8, heads=3), given)


def test_x_transformers_itself_where_it_is_installed(given):
    pytest.importorskip("x_transformers", reason="an optional contender")
    assert_is_the_reference(baselines.XTransformers(rows=6, head_dim=8, heads=3), given)


def test_a_baseline_that_cannot_be_had_says_why(monkeypatch):
    monkeypatch.setitem(sys.modules, "x_transformers", None)
    monkeypatch.setitem(sys.modules, "x_transformers.x_transformers", None)
    with pytest.raises(baselines.MissingError, match="x-transformers is not installed"):
        baselines.XTransformers(rows=6, head_dim=8, heads=3)
    monkeypatch.setitem(sys.modules, "x_transformers", SimpleNamespace())
    module = SimpleNamespace(CoPE=lambda width: None)
    monkeypatch.setitem(sys.modules, "x_transformers.x_transformers", module)
    with pytest.raises(baselines.MissingError, match="another CoPE"):
        baselines.XTransformers(rows=6, head_dim=8, heads=3)
