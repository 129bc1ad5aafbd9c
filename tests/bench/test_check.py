import math

import pytest
import torch

from milepost import ops
from milepost.bench import check, contenders
from milepost.bench.cases import SUBJECTS

EVERY = [(op, gates) for op in SUBJECTS for gates in SUBJECTS[op].gates]


@pytest.mark.parametrize("decode", [False, True], ids=["attention", "decoding"])
@pytest.mark.parametrize(("op", "gates"), EVERY)
def test_the_reference_is_right(op, gates, decode):
    for dtype in check.TOLERANCE:
        given = check.odd_operands(op, gates, 8, dtype, decode)
        verdict = check.judge(contenders.by(op, "reference"), op, given)
        assert verdict["verdict"] == check.RIGHT
        assert {f"gradient of {name}" for name in ("query", "key", "value")} < set(
            verdict["errors"]
        )
        # the tolerance is not there for the rounding alone
        assert max(verdict["errors"].values()) < check.TOLERANCE[dtype] / 3


def test_the_shape_is_an_odd_one():
    given = check.odd_operands("cope", "typical", 8, torch.float32, False)
    _, H, S, _ = given["query"].shape
    G, T = given["key"].shape[1:3]
    assert G < H
    assert S < T
    newest = torch.arange(T - S, T)
    seen = newest - given["start"].clamp(min=0) + 1
    assert seen.min() <= 0 < seen.max()
    assert given["table"].shape[0] < S / 2  # short, so that typical gates fill it


def broken(change):
    def call(query, key, value, **others):
        out = ops.softmax_attention(query, key, value, backend="reference", **others)
        return change(out)

    return call


CHANGES = {
    "another last row": lambda out: torch.cat([out[:, :, :-1], out[:, :, -2:-1]], 2),
    "not finite": lambda out: out + torch.nan * out.detach(),
    "another shape": lambda out: out[:, :, :-1],
    "no gradients": lambda out: out.detach() + 0 * out,
    "10% too large": lambda out: 1.1 * out,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_wrong_kernel_is_found_out(change, dtype):
    given = check.odd_operands("softmax", "typical", 8, dtype, False)
    verdict = check.judge(broken(change), "softmax", given)
    assert verdict["verdict"] == check.WRONG
    assert "up to" in verdict["reason"]
    assert all(error is None or math.isfinite(error) for error in verdict["errors"].values())


def test_a_kernel_that_fails_is_wrong():
    given = check.odd_operands("softmax", "typical", 8, torch.float32, False)
    verdict = check.judge(broken(lambda out: out @ out), "softmax", given)
    assert verdict["verdict"] == check.WRONG
    assert "RuntimeError" in verdict["reason"]


def test_a_single_wrong_element_is_found_out():
    def change(out):
        wrong = out.detach().clone()
        wrong[0, 0, -1, 0] += wrong.std() * 5
        return out + (wrong - out.detach())

    given = check.odd_operands("softmax", "typical", 8, torch.float32, False)
    assert check.judge(broken(change), "softmax", given)["verdict"] == check.WRONG


def test_a_refusal_is_not_a_mistake(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    given = check.odd_operands("softmax", "typical", 8, torch.float32, False)
    verdict = check.judge(contenders.by("softmax", "triton"), "softmax", given)
    assert verdict["verdict"] == check.REFUSED
    assert "triton refused" in verdict["reason"]
