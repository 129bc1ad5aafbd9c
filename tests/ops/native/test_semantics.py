"""What the ops promise of unusual operands, of every instruction set's kernels."""

import math

import pytest
import torch

from milepost import ops
from milepost.errors import UsageError
from milepost.ops import native

from ..cases import (
    OPS,
    OVER_KEYS,
    Case,
    assert_equal_up_to,
    cast,
    cotangents,
    floating,
    gradients,
    last,
    operands,
    parts,
    table,
)
from ..exact import FUSED, GRADIENT, OUTPUT, on, single
from ..layouts import LAYOUTS
from .exact import instruction_sets

pytestmark = [
    pytest.mark.skipif(native.isa() is None, reason=str(native.missing())),
    pytest.mark.usefixtures("poisoned"),
]

every_native_op = pytest.mark.parametrize("op", FUSED.values(), ids=FUSED)
CASE = Case("packed", H=4, G=2, S=100, T=140, D=8, V=12, span=90)


def assert_near(found, expected, relative):
    for one, other in zip(parts(found), parts(expected), strict=True):
        difference = (one.double() - other.double()).norm()
        assert difference <= relative * other.double().norm() + 2**-24


def assert_gradients_near(found, expected):
    """As near as rounding: beside the largest of them, where one is but what others leave."""
    largest = max(gradient.norm() for gradient in expected.values())
    for name, gradient in expected.items():
        difference = (found[name].double() - gradient.double()).norm()
        assert difference <= GRADIENT * gradient.norm() + 2**-22 * largest, name


def plain(case):
    return cast(operands(case), torch.float32)


@every_native_op
def test_nan_in_a_query_stays_in_its_row(op):
    case = Case(H=4, G=2, S=100, T=140, D=8)
    given = single(op, case)
    for _ in instruction_sets():
        expected = parts(on("native", op)(**given))
        broken = given | {"query": given["query"].clone()}
        broken["query"][1, 2, 30, 3] = float("nan")
        if "position_query" in given:
            broken["position_query"] = given["position_query"].clone()
            broken["position_query"][1, 2, 30, 3] = float("nan")
        found = parts(on("native", op)(**broken))
        assert found[0][1, 2, 30].isnan().all()
        for one, other in zip(found, expected, strict=True):
            others = torch.ones(one.shape[:3], dtype=torch.bool)
            others[1, 2, 30] = False
            assert_near(one[others], other[others], OUTPUT)
        assert gradients(on("native", op), broken)["query"][1, 2, 30].isnan().any()


@pytest.mark.parametrize("name", ["query", "key", "gate_keys", "table", "relative_table"])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@every_native_op
def test_what_is_not_finite_ends_no_process(op, number, name):
    given = single(op, CASE)
    if given.get(name) is None:
        pytest.skip("it does not take one")
    given[name].flatten()[given[name].numel() // 2] = number
    for _ in instruction_sets():
        out = parts(on("native", op)(**given))[0]
        assert out.isnan().any() or not math.isnan(number)
        gradients(on("native", op), given)


@pytest.mark.parametrize("dense", [False, True], ids=["table", "dense"])
def test_a_bias_of_minus_infinity_hides(dense):
    case, lowest = Case(S=100, T=140, D=8, V=12), -float("inf")
    bias = torch.randn((2, 2, 100, 140) if dense else (2, 80))
    bias[torch.rand(bias.shape) < 0.3] = lowest
    if dense:
        bias[:, :, [0, 40, 99]] = lowest
    given = plain(case) | {"bias": bias}
    exact = cast(given, torch.float64) | {"backend": "reference"}
    for _ in instruction_sets():
        found = ops.bias_attention(**given, backend="native")
        assert_near(found, ops.bias_attention(**exact), OUTPUT)
        slopes = gradients(on("native", FUSED["bias dense"]), given)
        assert_gradients_near(slopes, gradients(ops.bias_attention, exact))
        assert not slopes["bias"][bias == lowest].any()
        if dense:
            assert not found[:, :, [0, 40, 99]].any()
            assert not slopes["query"][:, :, [0, 40, 99]].any()


def test_a_bias_that_hides_everything_leaves_zeros():
    given = plain(CASE) | {"bias": torch.full((4, 3), -float("inf"))}
    for _ in instruction_sets():
        assert not ops.bias_attention(**given, backend="native").any()
        for gradient in gradients(on("native", FUSED["bias table"]), given).values():
            assert not gradient.any()


@pytest.mark.parametrize("dense", [False, True], ids=["table", "dense"])
def test_a_mask_of_the_lowest_float_is_finite(dense):
    """A row that it hides from whole attends to all alike, as in the reference."""
    bias = torch.zeros((2, 4, 9, 9) if dense else (4, 9))
    bias[..., ::2] = torch.finfo(torch.float32).min
    bias[-1] = torch.finfo(torch.float32).min
    given = plain(Case(H=4, S=9, T=9)) | {"bias": bias}
    exact = {**given, "backend": "reference"}
    for _ in instruction_sets():
        assert_near(
            ops.bias_attention(**given, backend="native"), ops.bias_attention(**exact), OUTPUT
        )
        found = gradients(on("native", FUSED["bias dense"]), given)
        assert_gradients_near(found, gradients(ops.bias_attention, exact))


@every_native_op
def test_a_query_that_sees_no_key_gets_zeros_and_gives_none(op):
    case = Case("no key", S=100, T=140)
    given = single(op, case)
    blind = given["start"] > torch.arange(case.T - case.S, case.T)
    for _ in instruction_sets():
        out, *remainder = parts(on("native", op)(**given))
        assert not out.transpose(1, 2)[blind].any()
        for rest in remainder:
            assert (rest.transpose(1, 2)[blind] == 1).all()
        found = gradients(on("native", op), given)
        assert not found["query"].transpose(1, 2)[blind].any()


@every_native_op
def test_if_no_query_sees_a_key_all_is_zero(op):
    given = single(op, CASE) | {"start": torch.full((2, 100), 140)}
    for _ in instruction_sets():
        assert not parts(on("native", op)(**given))[0].any()
        for name, gradient in gradients(on("native", op), given).items():
            assert not gradient.any(), name


@pytest.mark.parametrize("size", [1e4, 1e8, 1e30])
def test_large_logits_do_not_overflow(size):
    given = plain(Case(S=100, T=140, D=8))
    given["query"] = given["query"] * size
    logits = given["query"].double() @ given["key"].double().mT
    later = torch.ones(100, 140, dtype=torch.bool).triu(41)
    hardest = logits.masked_fill(later, -float("inf")).argmax(-1)
    chosen = given["value"].gather(2, hardest[..., None].expand(-1, -1, -1, 4))
    for _ in instruction_sets():
        found = ops.softmax_attention(**given, backend="native")
        # But for the few rows whose second logit is nearly as large
        near = (found - chosen).abs().amax(-1) < 1e-6
        assert near.double().mean() > 0.9
        assert found.isfinite().all()
        slopes = gradients(on("native", FUSED["softmax"]), given)
        for gradient in slopes.values():
            assert gradient.isfinite().all()
        # Weights are at most 1, but for the rounding of logits of 1e4
        (weights,) = cotangents((found,))
        assert (slopes["value"].abs() <= 1.01 * weights.abs().sum(2, keepdim=True)).all()


@pytest.mark.parametrize("size", [-1e30, -1e4, 1e4, 1e30])
def test_sticks_break_at_once_or_never(size):
    case = Case(S=100, T=140, D=1)
    given = plain(case)
    given |= {"query": torch.ones_like(given["query"]), "scale": 1.0}
    given["key"] = torch.full_like(given["key"], size)
    for _ in instruction_sets():
        out, remainder = ops.stick_breaking_attention(**given, backend="native")
        if size > 0:
            assert_equal_up_to(1e-6, out, given["value"][:, :, 39:139])
            assert_equal_up_to(1e-6, remainder, torch.zeros(2, 2, 100))
        else:
            assert_equal_up_to(1e-6, out, torch.zeros(2, 2, 100, 4))
            assert_equal_up_to(1e-6, remainder, torch.ones(2, 2, 100))


@pytest.mark.parametrize("lay", LAYOUTS.values(), ids=LAYOUTS)
@every_native_op
def test_operands_need_not_be_contiguous(op, lay):
    given = single(op, CASE)
    strided = {
        name: lay(x) if x.ndim > 1 else torch.stack([x, x], -1)[:, 0]
        for name, x in floating(given).items()
    }
    strided["start"] = torch.stack([given["start"], given["start"]], -1)[..., 0]
    assert any(not x.is_contiguous() for x in strided.values())
    call = on("native", op)
    assert_equal_up_to(0, call(**given | strided), call(**given))
    leaves = {name: x.requires_grad_() for name, x in floating(given).items()}

    def laid(**found):
        return call(**found | {name: lay(found[name]) for name in leaves if found[name].ndim > 1})

    found, expected = gradients(laid, given), gradients(call, given)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@every_native_op
def test_operands_may_be_expanded(op):
    """One batch, one head or one row that is repeated without memory of its own."""
    given, call = single(op, Case(H=2, G=2, S=70, T=70)), on("native", op)
    for axis in (0, 1, 2):
        expanded = {
            name: x.narrow(axis, 0, 1).expand_as(x)
            for name, x in floating(given).items()
            if x.ndim == 4
        }
        copies = {name: x.contiguous() for name, x in expanded.items()}
        assert_equal_up_to(0, call(**given | expanded), call(**given | copies))


@every_native_op
def test_gradients_may_come_expanded_or_strided(op):
    given, call = single(op, CASE), on("native", op)

    def gradient(reduce):
        query = given["query"].detach().clone().requires_grad_()
        return torch.autograd.grad(reduce(parts(call(**given | {"query": query}))[0]), query)[0]

    weights = torch.randn(CASE.V, CASE.S)
    assert_near(gradient(torch.sum), gradient(lambda out: (out * torch.ones(CASE.V)).sum()), 1e-6)
    strided = gradient(lambda out: (out.mT * weights).sum())
    assert_near(strided, gradient(lambda out: (out * weights.T.contiguous()).sum()), 1e-6)


@every_native_op
def test_operands_are_left_as_they_were(op):
    given = single(op, CASE)
    copies = {name: x.clone() for name, x in given.items() if isinstance(x, torch.Tensor)}
    gradients(on("native", op), given)
    assert all(torch.equal(given[name], copy) for name, copy in copies.items())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@every_native_op
def test_start_may_be_short_far_and_negative(op, dtype):
    given, call = single(op, CASE), on("native", op)
    short = given | {"start": given["start"].to(dtype)}
    assert_equal_up_to(0, call(**short), call(**given))
    limits = torch.iinfo(dtype)
    assert_equal_up_to(
        0,
        call(**given | {"start": torch.full((2, 100), limits.min, dtype=dtype)}),
        call(**given | {"start": None}),
    )
    never = call(**given | {"start": torch.full((2, 100), limits.max, dtype=dtype)})
    assert not parts(never)[0].any()


EMPTY = {
    "no batch": Case(B=0),
    "no query": Case(S=0),
    "no token": Case(S=0, T=0),
    "no value": Case(V=0),
    "no head": Case(H=0),
}


@pytest.mark.parametrize("case", EMPTY.values(), ids=EMPTY)
@every_native_op
def test_without_numbers_the_reference_runs(op, case):
    given = cast(op.operands(case), torch.float32)
    for one, other in zip(
        parts(op.call(**given)), parts(op.call(**given, backend="reference")), strict=True
    ):
        assert one.shape == other.shape
    with pytest.raises(UsageError, match=r"^native refused: needs at least one "):
        op.call(**given, backend="native")


@every_native_op
def test_fp64_is_refused_and_falls_back(op):
    given = op.operands(Case())
    with pytest.raises(UsageError, match=r"^native refused: computes in float32, got float64"):
        op.call(**given, backend="native")
    assert_equal_up_to(0, op.call(**given), op.call(**given, backend="reference"))


@every_native_op
def test_grouped_heads_are_heads_whose_keys_are_repeated(op):
    case = Case(H=6, G=2, S=70, T=140)
    given = single(op, case)
    repeated = {
        name: x.repeat_interleave(3, 1) if name in ("key", "value", "gate_keys") else x
        for name, x in given.items()
    }
    for _ in instruction_sets():
        call = on("native", op)
        assert_near(call(**given), call(**repeated), OUTPUT)
        found, expected = gradients(call, given), gradients(call, repeated)
        for name in ("key", "value", "gate_keys"):
            if name in expected:
                expected[name] = expected[name].unflatten(1, (2, 3)).sum(2)
        assert_gradients_near(found, expected)


@pytest.mark.parametrize("S", [1, 3, 64, 65])
@every_native_op
def test_the_last_queries_over_cached_keys_are_the_last_of_all(op, S):
    case = Case("window", H=4, G=2, S=140, T=140, span=100)
    given = single(op, case)
    for _ in instruction_sets():
        whole = tuple(part[:, :, -S:] for part in parts(on("native", op)(**given)))
        assert_near(on("native", op)(**last(case, S, given)), whole, OUTPUT)


@every_native_op
def test_no_query_sees_a_later_key(op):
    case = Case(S=130, T=140, B=1)
    given = single(op, case)
    for cut in (65, 100, 128):  # the first key that is another one
        changed = dict(given)
        for name in OVER_KEYS:
            if name in given:
                changed[name] = given[name].clone()
                changed[name][:, :, cut:] = -torch.rand_like(given[name][:, :, cut:])
        for _ in instruction_sets():
            before, after = parts(on("native", op)(**given)), parts(on("native", op)(**changed))
            for one, other in zip(before, after, strict=True):
                assert_near(one[:, :, : cut - 10], other[:, :, : cut - 10], OUTPUT)
                assert (one[:, :, cut - 10 :] != other[:, :, cut - 10 :]).any()


def test_gates_that_stay_open_forget_nothing():
    given = plain(CASE)
    for skip in (True, False):
        for _ in instruction_sets():
            found = ops.forgetting_attention(
                **given, log_f=torch.zeros(2, 4, 140), skip=skip, backend="native"
            )
            assert_near(found, ops.softmax_attention(**given, backend="native"), OUTPUT)


@pytest.mark.parametrize("rows", [2, 4, 70, 200])
@pytest.mark.parametrize("skip", [True, False])
def test_cope_with_open_gates_is_relative_attention(rows, skip):
    """Positions are then i − j + 1, from the query's own 1 on: row 0 is not used."""
    given, e = plain(CASE), 0.1 * table(CASE, rows).float()
    given["query"][..., 0] = 1
    gate_keys = torch.zeros(2, 2, 140, 8)
    gate_keys[..., 0] = 100
    more = {"gate_keys": gate_keys, "gate_scale": 1.0, "skip": skip}
    for _ in instruction_sets():
        found = ops.cope_attention(**given, table=e, **more, backend="native")
        expected = ops.relative_attention(**given, table=e[1:], backend="native")
        assert_near(found, expected, OUTPUT)


def test_cope_alibi_with_open_gates_is_alibi():
    given, slopes = plain(CASE), -0.1 * torch.rand(4)
    given["query"][..., 0] = 1
    gate_keys = torch.zeros(2, 2, 140, 8)
    gate_keys[..., 0] = 100
    more = {"gate_keys": gate_keys, "gate_scale": 1.0}
    by_distance = slopes[:, None] * torch.arange(140.0)
    for _ in instruction_sets():
        found = ops.cope_alibi_attention(**given, slopes=slopes, **more, backend="native")
        assert_near(found, ops.bias_attention(**given, bias=by_distance, backend="native"), OUTPUT)


def test_one_tensor_may_be_keys_values_and_a_bias():
    given = plain(Case(H=2, G=2, S=6, T=6, D=6, V=6))
    del given["value"]

    def call(backend):
        def shared(key, **rest):
            return ops.bias_attention(key=key, value=key, bias=key, **rest, backend=backend)

        return shared

    exact = cast(given, torch.float64)
    assert_near(call("native")(**given), call("reference")(**exact), OUTPUT)
    assert_gradients_near(gradients(call("native"), given), gradients(call("reference"), exact))


def test_one_tensor_may_be_several_operands():
    """Values that are keys, and gate keys that are values: gradients add up."""
    op = OPS["cope"]
    given = single(op, Case("window", H=4, G=2, S=70, T=140, span=90)) | {"gate_scale": 0.3}
    del given["value"]

    def call(backend):
        def shared(key, **rest):
            return on(backend, op)(key=key, value=key, gate_keys=key, **rest)

        return shared

    exact = cast(given, torch.float64)
    for _ in instruction_sets():
        assert_near(call("native")(**given), call("reference")(**exact), OUTPUT)
        assert_gradients_near(gradients(call("native"), given), gradients(call("reference"), exact))
