import pytest
import torch
from torch.nn import functional as F

from milepost.bench.cases import (
    HALF,
    NEVER,
    STICK_SPENT,
    SUBJECTS,
    TABLE_ROWS,
    TYPICAL,
    Shape,
    operands,
)

LAST_ROW = TABLE_ROWS - 1


def rows(keys, head_dim):
    """The last four of `keys` queries: theirs are the longest rows."""
    return Shape(B=1, H=2, G=2, S=4, T=keys, D=head_dim)


def logits(given):
    """Those that make the gates."""
    query = given.get("position_query", given["query"]).double()
    key = given.get("gate_keys", given["key"]).double()
    return query @ key.mT / query.shape[-1] ** 0.5


sizes = pytest.mark.parametrize(
    ("keys", "head_dim"), [(512, 64), (512, 16), (16384, 64), (16384, 128)]
)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])


@sizes
@dtypes
@pytest.mark.parametrize("op", ["cope", "cope_separate", "cope_alibi"])
def test_positions_stay_below_the_tables_end_only_where_gates_never_saturate(
    op, keys, head_dim, dtype
):
    counts = {}
    for gates in (TYPICAL, NEVER):
        given = operands(op, gates, rows(keys, head_dim), dtype)
        counts[gates] = logits(given).sigmoid().sum(-1)
    assert counts[TYPICAL].min() > LAST_ROW
    assert counts[NEVER].max() < LAST_ROW
    # and they do count: a kernel cannot treat every position as the first
    assert counts[NEVER].min() > LAST_ROW / 4


@sizes
@dtypes
def test_some_of_the_stick_is_left_only_where_gates_never_saturate(keys, head_dim, dtype):
    spent = {}
    for gates in (TYPICAL, NEVER):
        given = operands("stick_breaking", gates, rows(keys, head_dim), dtype)
        spent[gates] = F.softplus(logits(given))[..., :-4].sum(-1)
    assert spent[TYPICAL].min() > 100  # e⁻¹⁰⁰ is 0 in fp32
    assert spent[NEVER].max() < 2 * STICK_SPENT
    assert spent[NEVER].min() > STICK_SPENT / 4


@pytest.mark.parametrize("keys", [512, 16384])
def test_old_keys_are_forgotten_only_where_gates_never_saturate(keys):
    gone = {
        gates: operands("forgetting", gates, rows(keys, 8), torch.float32)["log_f"].double().sum(-1)
        for gates in (TYPICAL, NEVER)
    }
    assert gone[TYPICAL].max() < -50
    assert gone[NEVER].min() > -4
    assert gone[NEVER].max() < 0


def test_a_short_row_does_not_saturate_either():
    given = operands("cope", NEVER, Shape(1, 2, 2, 4, 8, 8, rows=5), torch.float32)
    assert logits(given).sigmoid().sum(-1).max() < 4


@pytest.mark.parametrize("op", SUBJECTS)
def test_operands_are_a_function_of_the_arguments(op):
    for gates in SUBJECTS[op].gates:
        shape = Shape(1, 4, 2, 3, 5, 8, rows=3)
        once, again = (operands(op, gates, shape, torch.bfloat16) for _ in range(2))
        assert once.keys() == again.keys()
        for name in once:
            assert torch.equal(once[name], again[name])
        of_tokens = {"query", "key", "value", "gate_keys", "position_query"}
        for name in once:
            dtype = torch.bfloat16 if name in of_tokens else torch.float32
            assert once[name].dtype == dtype
        SUBJECTS[op].call(**once, backend="reference")


def test_half_open_gates_are_half_open():
    given = operands("cope", HALF, Shape(1, 2, 2, 9, 9, 8), torch.float32)
    assert (given["query"] @ given["key"].mT).abs().max() == 0
    assert given["query"].any()
    assert given["key"].any()
    forgets = operands("forgetting", HALF, Shape(1, 2, 2, 9, 9, 8), torch.float32)
    assert forgets["log_f"].exp().allclose(torch.tensor(0.5))
