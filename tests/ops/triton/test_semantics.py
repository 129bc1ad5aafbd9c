"""What the ops promise of unusual operands."""

import pytest
import torch

from milepost import ops
from milepost.errors import UsageError
from milepost.ops import triton

from ..cases import (
    OPS,
    OVER_KEYS,
    Case,
    assert_equal_up_to,
    cast,
    floating,
    gradients,
    last,
    operands,
    parts,
    table,
)
from ..exact import FUSED, GRADIENT, OUTPUT, single
from ..layouts import LAYOUTS
from .exact import found, kernels

pytestmark = pytest.mark.skipif(triton.missing() is not None, reason=str(triton.missing()))

every_op = pytest.mark.parametrize("op", FUSED.values(), ids=FUSED)
CASE = Case("packed", B=2, H=2, G=1, S=20, T=40, D=8, V=12, span=30)


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


@every_op
def test_nan_in_a_query_stays_in_its_row(op):
    given = single(op, CASE)
    expected = parts(kernels(op.call)(**given))
    broken = given | {"query": given["query"].clone()}
    broken["query"][1, 1, 10, 3] = float("nan")
    if "position_query" in given:
        broken["position_query"] = given["position_query"].clone()
        broken["position_query"][1, 1, 10, 3] = float("nan")
    results, slopes = found(op, broken)
    assert results[0][1, 1, 10].isnan().all()
    for one, other in zip(results, expected, strict=True):
        others = torch.ones(one.shape[:3], dtype=torch.bool)
        others[1, 1, 10] = False
        assert_near(one[others], other[others], OUTPUT)
    assert slopes["query"][1, 1, 10].isnan().any()


@pytest.mark.parametrize("name", ["query", "key", "gate_keys", "table", "relative_table"])
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("op_name", ["cope with everything", "stick_breaking", "relative"])
def test_what_is_not_finite_ends_no_process(op_name, number, name):
    op = FUSED[op_name]
    given = single(op, Case(S=6, T=9))
    if given.get(name) is None:
        pytest.skip("it does not take one")
    given[name].flatten()[given[name].numel() // 2] = number
    results, _ = found(op, given)
    assert results[0].isnan().any() or number == float("inf")


@pytest.mark.parametrize("dense", [False, True], ids=["table", "dense"])
def test_a_bias_of_minus_infinity_hides(dense):
    case, lowest = Case(B=1, S=40, T=50, D=8, V=12), -float("inf")
    bias = torch.randn((1, 2, 40, 50) if dense else (2, 30))
    bias[torch.rand(bias.shape) < 0.3] = lowest
    if dense:
        bias[:, :, [0, 20, 39]] = lowest
    op, given = FUSED["bias dense"], plain(case) | {"bias": bias}
    exact = cast(given, torch.float64) | {"backend": "reference"}
    (out,), slopes = found(op, given)
    assert_near(out, ops.bias_attention(**exact), OUTPUT)
    assert_gradients_near(slopes, gradients(ops.bias_attention, exact))
    assert not slopes["bias"][bias == lowest].any()
    if dense:
        assert not out[:, :, [0, 20, 39]].any()
        assert not slopes["query"][:, :, [0, 20, 39]].any()


def test_a_bias_that_hides_everything_leaves_zeros():
    given = plain(CASE) | {"bias": torch.full((2, 3), -float("inf"))}
    (out,), slopes = found(FUSED["bias table"], given)
    assert not out.any()
    for gradient in slopes.values():
        assert not gradient.any()


@pytest.mark.parametrize("dense", [False, True], ids=["table", "dense"])
def test_a_mask_of_the_lowest_float_is_finite(dense):
    """A row that it hides from whole attends to all alike, as in the reference."""
    bias = torch.zeros((2, 4, 9, 9) if dense else (4, 9))
    bias[..., ::2] = torch.finfo(torch.float32).min
    bias[-1] = torch.finfo(torch.float32).min
    given = plain(Case(H=4, S=9, T=9)) | {"bias": bias}
    exact = {**given, "backend": "reference"}
    (out,), slopes = found(FUSED["bias dense"], given)
    assert_near(out, ops.bias_attention(**exact), OUTPUT)
    assert_gradients_near(slopes, gradients(ops.bias_attention, exact))


@pytest.mark.parametrize("far", [-1e3, -1e5, -float("inf")])
def test_a_bias_that_hides_all_beyond_a_distance(far):
    """As steep slopes do over thousands of tokens: it costs near keys nothing."""
    bias = torch.randn(2, 16)
    bias[:, -1] = far
    given = plain(Case(B=1, S=40, T=80, D=8)) | {"bias": bias}
    exact = cast(given, torch.float64) | {"backend": "reference"}
    (out,), slopes = found(FUSED["bias table"], given)
    assert_near(out, ops.bias_attention(**exact), OUTPUT)
    assert_gradients_near(slopes, gradients(ops.bias_attention, exact))


@every_op
def test_a_query_that_sees_no_key_gets_zeros_and_gives_none(op):
    case = Case("no key", H=1, G=1, S=20, T=40)
    given = single(op, case)
    blind = given["start"] > torch.arange(case.T - case.S, case.T)
    (out, *remainder), slopes = found(op, given)
    assert not out.transpose(1, 2)[blind].any()
    for rest in remainder:
        assert (rest.transpose(1, 2)[blind] == 1).all()
    assert not slopes["query"].transpose(1, 2)[blind].any()


@every_op
def test_if_no_query_sees_a_key_all_is_zero(op):
    given = single(op, CASE) | {"start": torch.full((2, 20), 40)}
    results, slopes = found(op, given)
    assert not results[0].any()
    for name, gradient in slopes.items():
        assert not gradient.any(), name


@pytest.mark.parametrize("size", [1e4, 1e30])
def test_large_logits_do_not_overflow(size):
    given = plain(Case(B=1, S=40, T=60, D=8))
    given["query"] = given["query"] * size
    (out,), slopes = found(FUSED["softmax"], given)
    assert out.isfinite().all()
    for gradient in slopes.values():
        assert gradient.isfinite().all()


@pytest.mark.parametrize("size", [-1e30, -1e4, 1e4, 1e30])
def test_sticks_break_at_once_or_never(size):
    given = plain(Case(B=1, S=40, T=60, D=1))
    given |= {"query": torch.ones_like(given["query"]), "scale": 1.0}
    given["key"] = torch.full_like(given["key"], size)
    (out, remainder), slopes = found(FUSED["stick_breaking"], given)
    broken = given["value"][:, :, 19:59]
    assert_equal_up_to(1e-6, out, broken if size > 0 else torch.zeros_like(broken))
    assert_equal_up_to(1e-6, remainder, torch.full((1, 2, 40), float(size < 0)))
    for gradient in slopes.values():
        assert gradient.isfinite().all()


@pytest.mark.parametrize("rate", [0.0, -1e-3, -1.0, -100.0, -1e4])
@pytest.mark.parametrize("skip", [True, False])
def test_forgetting_at_any_rate(rate, skip):
    """Down to where a key forgets everything before it: a gradient of 0, or the rounding of one."""
    case = Case(B=1, H=2, G=1, S=30, T=60, D=8, V=8)
    given = plain(case) | {"log_f": torch.full((1, 2, 60), rate), "skip": skip}
    exact = cast(given, torch.float64) | {"backend": "reference"}
    results, slopes = found(FUSED["forgetting"], given)
    assert_near(results, ops.forgetting_attention(**exact), OUTPUT)
    assert_gradients_near(slopes, gradients(ops.forgetting_attention, exact))


def test_forgetting_far_into_a_sequence_is_as_exact_as_at_its_start():
    """Λ reaches −1e6, where fp32 has steps of 1/16: as differences of it, the logits would too."""
    given = plain(Case(B=1, H=2, S=32, T=64, D=8, V=8))
    given["log_f"] = -0.1 * torch.rand(1, 2, 64)
    near = kernels(ops.forgetting_attention)(**given)
    given["log_f"][..., 0] = -1e6  # older than every key: it changes no difference
    assert_near(kernels(ops.forgetting_attention)(**given), near, OUTPUT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_counts_of_many_small_gates_keep_their_fraction(dtype):
    """300 gates of about 1/2 add up to 150: bf16 holds that to ±1/2, fp32 to ±1e-5."""
    case = Case(B=1, H=1, G=1, S=2, T=300, D=4, V=4)
    given = cast(operands(case) | {"table": 5 * table(case, 300)}, dtype)
    given["query"] = 0.1 * given["query"]
    exact = ops.cope_attention(**cast(given, torch.float64))
    out = kernels(ops.cope_attention)(**given)
    # The weights and the result are rounded; an error of 1/2 in a count is 50 times that
    allowed = 2 * torch.finfo(dtype).eps * given["value"].abs().max() + 1e-5
    assert (out.double() - exact).abs().max() <= allowed


@pytest.mark.parametrize("lay", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize(
    "name", ["bias table", "bias dense", "cope with everything", "forgetting", "stick_breaking"]
)
def test_operands_need_not_be_contiguous(name, lay):
    op = FUSED[name]
    given = single(op, Case("packed", H=2, G=1, S=6, T=20, D=8, V=12, span=9))
    strided = {
        name: lay(x) if x.ndim > 1 else torch.stack([x, x], -1)[:, 0]
        for name, x in floating(given).items()
    }
    strided["start"] = torch.stack([given["start"], given["start"]], -1)[..., 0]
    assert any(not x.is_contiguous() for x in strided.values())
    call = kernels(op.call)
    # PyTorch's products of queries and tables depend on how they lie, in the last bits
    assert_equal_up_to(1e-6, call(**given | strided), call(**given))
    leaves = floating(given)

    def laid(**found):
        return call(**found | {name: lay(found[name]) for name in leaves if found[name].ndim > 1})

    assert_gradients_near(gradients(laid, given), gradients(call, given))


@every_op
def test_operands_may_be_expanded(op):
    """One batch, one head or one row that is repeated without memory of its own."""
    given, call = single(op, Case(S=20, T=20)), kernels(op.call)
    for axis in (0, 1, 2):
        expanded = {
            name: x.narrow(axis, 0, 1).expand_as(x)
            for name, x in floating(given).items()
            if x.ndim == 4
        }
        copies = {name: x.contiguous() for name, x in expanded.items()}
        assert_equal_up_to(0, call(**given | expanded), call(**given | copies))


@every_op
def test_gradients_may_come_expanded_or_strided(op):
    given, call = single(op, Case("packed", S=6, T=20, V=5, span=9)), kernels(op.call)

    def gradient(reduce):
        query = given["query"].detach().clone().requires_grad_()
        return torch.autograd.grad(reduce(parts(call(**given | {"query": query}))[0]), query)[0]

    weights = torch.randn(5, 6)
    assert_near(gradient(torch.sum), gradient(lambda out: (out * torch.ones(5)).sum()), 1e-6)
    strided = gradient(lambda out: (out.mT * weights).sum())
    assert_near(strided, gradient(lambda out: (out * weights.T.contiguous()).sum()), 1e-6)


@every_op
def test_operands_are_left_as_they_were(op):
    given = single(op, Case("window", S=6, T=9))
    copies = {name: x.clone() for name, x in given.items() if isinstance(x, torch.Tensor)}
    gradients(kernels(op.call), given)
    assert all(torch.equal(given[name], copy) for name, copy in copies.items())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", ["softmax", "cope", "forgetting", "stick_breaking"])
def test_start_may_be_short_far_and_negative(name, dtype):
    op = FUSED[name]
    given, call = single(op, CASE), kernels(op.call)
    short = given | {"start": given["start"].to(dtype)}
    assert_equal_up_to(0, call(**short), call(**given))
    limits = torch.iinfo(dtype)
    everything = call(**given | {"start": torch.full((2, 20), limits.min, dtype=dtype)})
    assert_near(everything, call(**given | {"start": None}), OUTPUT)
    never = call(**given | {"start": torch.full((2, 20), limits.max, dtype=dtype)})
    assert not parts(never)[0].any()


EMPTY = {
    "no batch": Case(B=0),
    "no query": Case(S=0),
    "no token": Case(S=0, T=0),
    "no value": Case(V=0),
    "no head": Case(H=0),
}


@pytest.mark.parametrize("case", EMPTY.values(), ids=EMPTY)
@every_op
def test_without_numbers_it_is_refused(op, case):
    given = cast(op.operands(case), torch.float32)
    with pytest.raises(UsageError, match=r"^triton refused: needs at least one "):
        kernels(op.call)(**given)


@every_op
def test_fp64_and_wide_heads_are_refused(op):
    with pytest.raises(UsageError, match=r"^triton refused: computes in float32, got float64"):
        kernels(op.call)(**op.operands(Case()))
    wide = cast(op.operands(Case(D=257)), torch.float32)
    with pytest.raises(UsageError, match=r"^triton refused: takes head_dim up to .* got 257"):
        kernels(op.call)(**wide)


@every_op
def test_grouped_heads_are_heads_whose_keys_are_repeated(op):
    given = single(op, Case(B=1, H=3, G=1, S=20, T=40))
    repeated = {
        name: x.repeat_interleave(3, 1) if name in ("key", "value", "gate_keys") else x
        for name, x in given.items()
    }
    results, slopes = found(op, given)
    expected, expected_slopes = found(op, repeated)
    assert_near(results, expected, OUTPUT)
    for name in ("key", "value", "gate_keys"):
        if name in expected_slopes:
            expected_slopes[name] = expected_slopes[name].sum(1, keepdim=True)
    assert_gradients_near(slopes, expected_slopes)


@pytest.mark.parametrize("S", [1, 3, 17])
@every_op
def test_the_last_queries_over_cached_keys_are_the_last_of_all(op, S):
    case = Case("window", B=1, H=2, G=1, S=50, T=50, span=40)
    given, call = single(op, case), kernels(op.call)
    whole = tuple(part[:, :, -S:] for part in parts(call(**given)))
    assert_near(call(**last(case, S, given)), whole, OUTPUT)


@every_op
def test_no_query_sees_a_later_key(op):
    case = Case(B=1, H=1, G=1, S=40, T=50)
    given, call = single(op, case), kernels(op.call)
    before = parts(call(**given))
    for cut in (31, 40):  # the first key that is another one
        changed = dict(given)
        for name in OVER_KEYS:
            if name in given:
                changed[name] = given[name].clone()
                changed[name][:, :, cut:] = -torch.rand_like(given[name][:, :, cut:])
        for one, other in zip(before, parts(call(**changed)), strict=True):
            assert_near(one[:, :, : cut - 10], other[:, :, : cut - 10], OUTPUT)
            assert (one[:, :, cut - 10 :] != other[:, :, cut - 10 :]).any()


@pytest.mark.parametrize("rows", [2, 4, 30, 60])
@pytest.mark.parametrize("skip", [True, False])
def test_cope_with_open_gates_is_relative_attention(rows, skip):
    """Positions are then i − j + 1, from the query's own 1 on: row 0 is not used."""
    given, e = plain(CASE), 0.1 * table(CASE, rows).float()
    given["query"][..., 0] = 1
    gate_keys = torch.zeros(2, 1, 40, 8)
    gate_keys[..., 0] = 100
    more = {"gate_keys": gate_keys, "gate_scale": 1.0, "skip": skip}
    assert_near(
        kernels(ops.cope_attention)(**given, table=e, **more),
        kernels(ops.relative_attention)(**given, table=e[1:]),
        OUTPUT,
    )


def test_one_tensor_may_be_several_operands():
    """Values that are keys, and gate keys that are values: gradients add up."""
    op = OPS["cope"]
    given = single(op, Case("window", B=1, H=2, G=1, S=20, T=40, span=30)) | {"gate_scale": 0.3}
    del given["value"]

    def call(run):
        return lambda key, **rest: run(key=key, value=key, gate_keys=key, **rest)

    by_kernels, by_reference = call(kernels(op.call)), call(op.call)
    exact = cast(given, torch.float64)
    assert_near(by_kernels(**given), by_reference(**exact), OUTPUT)
    assert_gradients_near(gradients(by_kernels, given), gradients(by_reference, exact))
