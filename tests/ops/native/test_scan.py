"""Every op's kernels, for every instruction set of this machine, against the reference in fp64."""

from dataclasses import replace

import pytest
import torch

from milepost import ops
from milepost.errors import UsageError
from milepost.ops import native

from ..cases import GRID, OPS, Case, cast
from ..exact import FUSED, rows_in_tables, single
from .exact import check

pytestmark = [
    pytest.mark.skipif(native.isa() is None, reason=str(native.missing())),
    pytest.mark.usefixtures("poisoned"),
]

# A kernel works on tiles of 64 queries and 64 keys, and on vectors of 16, 8 or 4 floats
LARGE = {
    **{f"T={T}": Case(B=1, H=1, G=1, S=T, T=T, D=8, V=8) for T in (63, 64, 65, 127, 128, 129)},
    "three tiles, grouped": Case(S=130, T=130, D=16, V=24, H=4, G=2),
    "S<T over tiles": Case(S=70, T=200, D=33, V=17),
    "S<T within a tile": Case(S=3, T=150, H=6, G=2),
    "64 of 130": Case(S=64, T=130, D=5),
    "65 of 128": Case(S=65, T=128, D=5),
    "decoding, grouped": Case(S=1, T=130, H=8, G=2, D=24, V=40),
    "more heads than a tile holds": Case(S=30, T=70, H=6, G=1),
    "D=1": Case(S=66, T=66, D=1, V=3),
    "D=16, V=3D": Case(S=66, T=66, D=16, V=48),
    "D=33, V=2D": Case(S=66, T=66, D=33, V=66),
    "D=64, V=3D": Case(S=66, T=66, D=64, V=192),
    "D=80, V=1": Case(S=66, T=66, D=80, V=1),
    "D=128": Case(S=66, T=66, D=128, V=128),
    "D=256, V=3D": Case(S=66, T=66, H=2, G=1, D=256, V=768),
    "documents within tiles": Case("packed", S=150, T=150, span=10),
    "documents over tiles": Case("packed", S=200, T=200, span=90),
    "window within a tile": Case("window", S=150, T=150, span=5),
    "window over tiles": Case("window", S=70, T=250, span=100),
    "padding over tiles": Case("padding", B=3, H=4, G=2, S=150, T=150, span=100),
    "padding past queries": Case("padding", B=2, S=20, T=150, span=140),
    "many rows with no key": Case("no key", S=130, T=140),
}
# Up to two rows of whole vectors meet keys as they lie
FEW = {
    "one query": Case(S=1, T=150, D=32, V=16),
    "one with padding": Case("padding", S=1, T=150, D=16, V=32, span=100),
    "two heads that share keys": Case(S=1, T=70, H=4, G=2, D=48, V=48),
    "two queries": Case(S=2, T=130, D=64, V=16),
}
LONG_TABLES = {
    name: op for rows in (1, 17, 64, 65, 150, 400) for name, op in rows_in_tables(rows).items()
}

every_native_op = pytest.mark.parametrize("op", FUSED.values(), ids=FUSED)


@pytest.mark.parametrize("case", [pytest.param(c, id=n) for n, c in GRID.items()])
@every_native_op
def test_it_is_the_reference(op, case):
    """One key has all the weight, whatever its logit: the slope of that is 0, but for rounding."""
    check(op, single(op, case), of_terms=case.T == 1)


@pytest.mark.parametrize("case", LARGE.values(), ids=LARGE)
@every_native_op
def test_it_is_the_reference_over_tiles(op, case):
    check(op, single(op, case))


@pytest.mark.parametrize("case", FEW.values(), ids=FEW)
@every_native_op
def test_it_is_the_reference_for_few_queries(op, case):
    """∂loss/∂logit sums to 0 over a row: far from it, where a table ends, little is left of it."""
    check(op, single(op, case), of_terms=True)


@pytest.mark.parametrize(
    "case",
    [Case(S=70, T=200, B=1, G=1, D=12), Case("padding", S=10, T=80, span=75)],
    ids=["S<T", "padding"],
)
@pytest.mark.parametrize("op", LONG_TABLES.values(), ids=LONG_TABLES)
def test_tables_of_any_length(op, case):
    """A table of one row is the same at every distance: its gradient is 0, but for rounding."""
    check(op, single(op, case), of_terms=True)


@pytest.mark.parametrize("heads", [1, 2], ids=["one head", "every head"])
@pytest.mark.parametrize("batch", [1, 2], ids=["one batch", "every batch"])
def test_a_dense_bias_that_is_shared(batch, heads):
    case = Case(S=70, T=130, H=2, G=1)
    op = FUSED["bias dense"]
    check(op, single(op, case) | {"bias": torch.randn(batch, heads, case.S, case.T)})


@pytest.mark.parametrize("name", ["cope with everything", "forgetting", "bias table"])
def test_a_sequence_cut_into_stretches(name):
    """From 32 tiles on, the queries of one head are several pieces of work."""
    op = FUSED[name]
    case = Case("window", B=1, H=1, G=1, S=2050, T=2050, span=500)
    check(op, single(op, case), of_terms=True)


@pytest.mark.parametrize("options", [{"gate_scale": 0.3}, {"scale": -0.4}, {"gate_scale": 0.0}])
@pytest.mark.parametrize("with_gate_keys", [False, True])
def test_gates_have_a_scale_of_their_own(options, with_gate_keys):
    """Gates of 1/2, at a scale of 0, count to whole numbers exactly, in fp32 too."""
    op, case = OPS["cope_alibi"], Case("packed", S=70, T=130, span=90)
    given = single(op, case) | options
    if not with_gate_keys:
        del given["gate_keys"]
    check(op, given, of_terms=options.get("gate_scale") == 0)


def test_half_open_gates_have_no_slope_at_whole_counts():
    """Gates of 1/2 count 1/2, 1, 3/2, …: the kernel is at the whole numbers, as the reference."""
    op, case = OPS["cope"], Case(S=70, T=70)
    given = cast(op.operands(case), torch.float32)
    given["key"] = torch.zeros_like(given["key"])
    given["table"] *= 0.1
    check(op, given)


def test_position_queries_without_gate_keys():
    """They meet the tables alone; the gates are those of the content."""
    everything = OPS["cope with everything"]
    op = replace(everything, extra=lambda case: everything.extra(case) | {"gate_keys": None})
    check(op, single(op, Case("window", S=70, T=130, span=100)))


def test_cope_with_a_network_is_refused_and_falls_back():
    op = OPS["cope_mlp"]
    given = cast(op.operands(Case()), torch.float32)
    with pytest.raises(UsageError, match=r"^native refused: has no kernel for cope_mlp_attention"):
        ops.cope_mlp_attention(**given, backend="native")
    assert torch.equal(op.call(**given), op.call(**given, backend="reference"))
