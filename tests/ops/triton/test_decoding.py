"""A few queries against many keys, which are split over programs, and parts of them joined."""

import pytest
import torch

from milepost.ops import triton

from ..cases import Case, parts
from ..exact import FUSED, drawn, exactly, rows_in_tables
from .exact import check, found, kernels, too_far

pytestmark = pytest.mark.skipif(triton.missing() is not None, reason=str(triton.missing()))

CASES = {
    "one query": Case(B=1, S=1, T=65, H=1, G=1, D=20, V=17),
    "one key more than a part": Case(B=1, H=1, G=1, S=1, T=97),
    "heads that share keys": Case(B=1, S=2, T=50, H=6, G=2, D=16, V=16),
    "wide heads": Case(B=1, S=2, T=50, H=4, G=2, D=80, V=40),
    "more rows than a tile": Case(B=1, S=5, T=50, H=5, G=1),
    "padding": Case("padding", H=1, G=1, S=1, T=50, span=40),
    "window": Case("window", B=1, H=2, G=1, S=3, T=70, span=20),
    "no key": Case("no key", H=1, G=1, S=3, T=40),
}
OPS = FUSED | {name: op for rows in (1, 20) for name, op in rows_in_tables(rows).items()}


@pytest.fixture(autouse=True)
def split(monkeypatch):
    """Keys are split though they are few."""
    from milepost.ops.triton import _launch

    monkeypatch.setattr(_launch, "FEWEST_KEYS", 17)
    seen = []
    decode = _launch.decode
    monkeypatch.setattr(_launch, "decode", lambda *given: (seen.append(1), decode(*given)))
    yield
    assert seen


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_it_is_the_reference(op, dtype, case):
    given = drawn(op, case, dtype)
    results = parts(kernels(op.call)(**given))
    _, slopes = exactly(op, given)
    rounded = {name: gradient.to(given[name].dtype) for name, gradient in slopes.items()}
    wrong = too_far(op, given, (results, rounded))
    assert not wrong, wrong


@pytest.mark.parametrize("op", FUSED.values(), ids=FUSED)
def test_gradients_follow(op):
    """The backward takes up what this forward wrote."""
    check(op, drawn(op, CASES["window"], torch.float32), of_terms=True)


@pytest.mark.parametrize("most", [1, 2, 3])
@pytest.mark.parametrize("name", ["softmax", "cope", "cope_alibi", "forgetting", "stick_breaking"])
def test_any_number_of_parts(name, most, monkeypatch):
    from milepost.ops.triton import _launch

    monkeypatch.setattr(_launch, "MOST_PARTS", most)
    op = FUSED[name]
    given = drawn(op, Case("window", B=1, H=2, G=1, S=2, T=90, span=80), torch.float32)
    assert not too_far(op, given, found(op, given), of_terms=True)
