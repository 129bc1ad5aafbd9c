"""Every op's kernels, forward and backward, on every dtype, against the reference in fp64."""

from dataclasses import replace

import pytest
import torch

from milepost import ops
from milepost.errors import UsageError
from milepost.ops import triton
from milepost.ops.triton import _scan

from ..cases import GRID, OPS, Case, cast
from ..exact import FUSED, drawn, rows_in_tables, single
from .exact import check

pytestmark = pytest.mark.skipif(triton.missing() is not None, reason=str(triton.missing()))

# Tiles are of 16 and of 32: conftest.py
LARGE = {
    **{f"T={T}": Case(B=1, H=1, G=1, S=T, T=T, D=8, V=8) for T in (31, 32, 33)},
    "S<T over tiles, grouped": Case(B=1, S=37, T=70, H=2, G=1, D=33, V=17),
    "S<T within a tile": Case(B=1, S=3, T=75, H=3, G=1, D=5),
    "16 of 48": Case(B=1, H=1, G=1, S=16, T=48, D=16, V=16),
    "decoding, grouped": Case(B=1, S=1, T=65, H=4, G=2, D=24, V=40),
    "D=1": Case(B=1, H=1, G=1, S=34, T=34, D=1, V=3),
    "D=48, V=1": Case(B=1, H=1, G=1, S=34, T=34, D=48, V=1),
    "D=64, V=5D": Case(B=1, H=1, G=1, S=18, T=34, D=64, V=320),
    "documents over tiles": Case("packed", H=1, G=1, S=50, T=50, span=23),
    "window over tiles": Case("window", B=1, H=1, G=1, S=40, T=90, span=36),
    "padding past queries": Case("padding", H=1, G=1, S=20, T=60, span=50),
    "many rows with no key": Case("no key", H=1, G=1, S=40, T=50),
}
LONG_TABLES = {
    name: op for rows in (1, 17, 64, 65, 100) for name, op in rows_in_tables(rows).items()
}
HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}

every_op = pytest.mark.parametrize("op", FUSED.values(), ids=FUSED)
every_dtype = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"]
)


@pytest.mark.parametrize("case", GRID.values(), ids=GRID)
@every_dtype
@every_op
def test_it_is_the_reference(op, dtype, case):
    """One key has all the weight, whatever its logit: the slope of that is 0, but for rounding."""
    check(op, drawn(op, case, dtype), of_terms=case.T == 1)


@pytest.mark.parametrize("case", LARGE.values(), ids=LARGE)
@every_dtype
@every_op
def test_it_is_the_reference_over_tiles(op, dtype, case):
    """∂loss/∂logit sums to 0 over a row: far from it, where a table ends, little is left of it.

    So it does for the decay, where the sum over wide values is what rounds.
    """
    check(op, drawn(op, case, dtype), of_terms=case.S <= 3 or case.V > 256)


@pytest.mark.parametrize("D", [80, 256])
@every_dtype
@every_op
def test_wide_heads(op, dtype, D):
    check(op, drawn(op, Case(B=1, H=1, G=1, S=18, T=34, D=D, V=256), dtype), of_terms=True)


@pytest.mark.parametrize(
    "case",
    [Case(B=1, S=20, T=70, G=1, D=12), Case("padding", H=1, G=1, S=10, T=40, span=37)],
    ids=["S<T", "padding"],
)
@every_dtype
@pytest.mark.parametrize("op", LONG_TABLES.values(), ids=LONG_TABLES)
def test_tables_of_any_length(op, dtype, case):
    """A table of one row is the same at every distance: its gradient is 0, but for rounding."""
    check(op, drawn(op, case, dtype), of_terms=True)


@every_op
def test_fp16(op):
    case = Case("window", B=1, H=2, G=1, S=37, T=70, D=18, V=23, span=50)
    check(op, drawn(op, case, torch.float16))


BESIDE = {
    "fp32 beside bf16": (torch.float32, torch.bfloat16),
    "fp32 beside fp16": (torch.float32, torch.float16),
    "bf16 beside fp32": (torch.bfloat16, torch.float32),
    "fp16 beside bf16": (torch.float16, torch.bfloat16),
}


@pytest.mark.parametrize(("parameters", "tokens"), BESIDE.values(), ids=BESIDE)
@every_op
def test_parameters_are_of_a_dtype_of_their_own(op, parameters, tokens):
    """As under autocast: tables, slopes, biases and gates beside queries, keys and values."""
    of_tokens = ("query", "key", "value", "gate_keys", "position_query")
    given = drawn(op, Case("window", S=6, T=9), torch.bfloat16)
    halves = cast({name: given[name] for name in of_tokens if name in given}, tokens)
    check(op, cast(given, parameters) | halves, of_terms=True)


@pytest.mark.parametrize("heads", [1, 2], ids=["one head", "every head"])
@pytest.mark.parametrize("batch", [1, 2], ids=["one batch", "every batch"])
@every_dtype
def test_a_dense_bias_that_is_shared(dtype, batch, heads):
    case = Case(S=20, T=37, H=2, G=1)
    op = FUSED["bias dense"]
    given = drawn(op, case, dtype)
    check(op, given | {"bias": torch.randn(batch, heads, case.S, case.T).to(dtype)})


@pytest.mark.parametrize("options", [{"gate_scale": 0.3}, {"scale": -0.4}, {"gate_scale": 0.0}])
@pytest.mark.parametrize("with_gate_keys", [False, True])
@pytest.mark.parametrize("name", ["cope_alibi", "cope"])
def test_gates_have_a_scale_of_their_own(name, options, with_gate_keys):
    """Gates of 1/2, at a scale of 0, count to whole numbers exactly, in fp32 too."""
    op, case = OPS[name], Case("packed", B=2, H=1, G=1, S=24, T=50, span=30)
    with_options = replace(op, extra=lambda case: op.extra(case) | options)
    given = single(op if options.get("gate_scale") == 0 else with_options, case) | options
    if with_gate_keys and "gate_keys" not in given:
        given["gate_keys"] = torch.randn_like(given["key"])
        if options.get("gate_scale") != 0:
            pytest.skip("drawn away from the kinks of other gates")
    elif not with_gate_keys:
        given.pop("gate_keys", None)
    check(op, given, of_terms=options.get("gate_scale") == 0)


@every_dtype
def test_half_open_gates_have_no_slope_at_whole_counts(dtype):
    """Gates of 1/2 count 1/2, 1, 3/2, …: the kernel is at the whole numbers, as the reference."""
    op, case = OPS["cope"], Case(B=1, S=40, T=40)
    given = cast(op.operands(case), dtype)
    given["key"] = torch.zeros_like(given["key"])
    given["table"] *= 0.1
    check(op, given)


def test_position_queries_without_gate_keys():
    """They meet the tables alone; the gates are those of the content."""
    everything = OPS["cope with everything"]
    op = replace(everything, extra=lambda case: everything.extra(case) | {"gate_keys": None})
    check(op, single(op, Case("window", H=1, G=1, S=30, T=70, span=50)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    "name", ["cope", "cope with everything", "relative", "bias table", "forgetting"]
)
def test_queries_are_met_in_stretches_where_tables_would_not_fit(name, dtype, monkeypatch):
    op = FUSED[name]
    given = drawn(op, Case("window", B=1, H=1, G=1, S=70, T=75, span=40), dtype)
    monkeypatch.setattr(_scan, "SCRATCH", 1)
    check(op, given, of_terms=True)


def test_cope_with_a_network_is_refused_and_falls_back():
    op = OPS["cope_mlp"]
    given = cast(op.operands(Case()), torch.float32)
    with pytest.raises(UsageError, match=r"^triton refused: "):
        ops.cope_mlp_attention(**given, backend="triton")
    assert torch.equal(op.call(**given), op.call(**given, backend="reference"))
