"""What the ops promise of unusual operands, of every fused backend's kernels.

Each backend's tests have `Semantics` as their base, and say how its kernels are called.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from milepost import ops
from milepost.errors import UsageError

from .cases import (
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
from .exact import FUSED, GRADIENT, OUTPUT, single
from .fused import Fused, every_fused_op
from .layouts import LAYOUTS

table_and_dense = pytest.mark.parametrize("dense", [False, True], ids=["table", "dense"])
EMPTY = {
    "no batch": Case(B=0),
    "no query": Case(S=0),
    "no token": Case(S=0, T=0),
    "no value": Case(V=0),
    "no head": Case(H=0),
}


def assert_near(found, expected, relative):
    for one, other in zip(parts(found), parts(expected), strict=True):
        difference = (one.double() - other.double()).norm()
        assert difference <= relative * other.double().norm() + 2**-24


def assert_gradients_near(found, expected):
    """As near as rounding: beside the largest of them, where one is but what others leave."""
    largest = max(gradient.norm() for gradient in expected.values())
    for name, gradient in expected.items():
        # That of a gate is a sum over the tokens from it on, whose roundings are independent: its
        # own grows with the root of their number
        growth = gradient.shape[-1] ** 0.5 if name == "log_f" else 1
        difference = (found[name].double() - gradient.double()).norm()
        assert difference <= GRADIENT * gradient.norm() + growth * 2**-22 * largest, name


def plain(case):
    return cast(operands(case), torch.float32)


class Semantics(Fused):
    """The promises, and what a backend's tests say of it: sizes of cases, above all."""

    found: Callable[..., Any]  # an op's results and its gradients
    packed: Case  # over several tiles
    short: Case  # no longer, for what takes many calls
    long: Case  # over more tiles, and no start
    starts: tuple[str | None, ...] = ("packed",)  # of queries with a NaN
    lasts: tuple[int, ...]  # how many last queries are as if they were with all others
    later: tuple[int, ...]  # keys of `long` that its first queries do not see
    # Whether no bit depends on how operands lie, nor on a start that hides nothing
    same_bits: bool

    @staticmethod
    def instruction_sets() -> Iterator[str | None]:
        """Each that the kernels are compiled for, in use."""
        yield None

    def assert_near_reference(self, op, given):
        """Its results, which are returned with its gradients, and both are those in fp64."""
        exact = cast(given, torch.float64) | {"backend": "reference"}
        results, slopes = self.found(op, given)
        assert_near(results, op.call(**exact), OUTPUT)
        assert_gradients_near(slopes, gradients(op.call, exact))
        return results, slopes

    @every_fused_op
    def test_nan_in_a_query_stays_in_its_row(self, op):
        for start in self.starts:
            case = replace(self.packed, start=start)
            given, row = single(op, case), (1, case.H // 2, case.S // 2)
            broken = dict(given)
            for name in given.keys() & {"query", "position_query"}:
                broken[name] = given[name].clone()
                broken[name][row][3] = float("nan")
            for _ in self.instruction_sets():
                expected = parts(self.kernels(op.call)(**given))
                results, slopes = self.found(op, broken)
                assert results[0][row].isnan().all()
                for one, other in zip(results, expected, strict=True):
                    others = torch.ones(one.shape[:3], dtype=torch.bool)
                    others[row] = False
                    assert_near(one[others], other[others], OUTPUT)
                assert slopes["query"][row].isnan().any()

    @pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
    def test_what_is_not_finite_ends_no_process(self, some_op, number):
        given = single(some_op, self.short)
        for name in given.keys() & {"query", "key", "gate_keys", "table", "relative_table"}:
            broken = given | {name: given[name].clone()}
            broken[name].flatten()[given[name].numel() // 2] = number
            for _ in self.instruction_sets():
                results, _ = self.found(some_op, broken)
                assert results[0].isnan().any() or not math.isnan(number), name

    @table_and_dense
    def test_a_bias_of_minus_infinity_hides(self, dense):
        B, H, S, T = (getattr(self.long, axis) for axis in "BHST")
        lowest, rows = -float("inf"), [0, S // 2, S - 1]
        bias = torch.randn((B, H, S, T) if dense else (H, 4 * T // 7))
        bias[torch.rand(bias.shape) < 0.3] = lowest
        if dense:
            bias[:, :, rows] = lowest
        given = plain(self.long) | {"bias": bias}
        for _ in self.instruction_sets():
            (out,), slopes = self.assert_near_reference(FUSED["bias dense"], given)
            assert not slopes["bias"][bias == lowest].any()
            if dense:
                assert not out[:, :, rows].any()
                assert not slopes["query"][:, :, rows].any()

    def test_a_bias_that_hides_everything_leaves_zeros(self):
        given = plain(self.packed) | {"bias": torch.full((self.packed.H, 3), -float("inf"))}
        for _ in self.instruction_sets():
            (out,), slopes = self.found(FUSED["bias table"], given)
            assert not out.any()
            for gradient in slopes.values():
                assert not gradient.any()

    @table_and_dense
    def test_a_mask_of_the_lowest_float_is_finite(self, dense):
        """A row that it hides from whole attends to all alike, as in the reference."""
        bias = torch.zeros((2, 4, 9, 9) if dense else (4, 9))
        bias[..., ::2] = torch.finfo(torch.float32).min
        bias[-1] = torch.finfo(torch.float32).min
        op, given = FUSED["bias dense"], plain(Case(H=4, S=9, T=9)) | {"bias": bias}
        exact = {**given, "backend": "reference"}  # in fp32: fp64 would tell the lowest apart
        for _ in self.instruction_sets():
            results, slopes = self.found(op, given)
            assert_near(results, op.call(**exact), OUTPUT)
            assert_gradients_near(slopes, gradients(op.call, exact))

    @pytest.mark.parametrize("far", [-1e3, -1e5, -float("inf")])
    def test_a_bias_that_hides_all_beyond_a_distance(self, far):
        """As steep slopes do over thousands of tokens: it costs near keys nothing."""
        bias = torch.randn(self.long.H, 16)
        bias[:, -1] = far
        given = plain(replace(self.long, T=self.long.T + 20)) | {"bias": bias}
        for _ in self.instruction_sets():
            self.assert_near_reference(FUSED["bias table"], given)

    @every_fused_op
    def test_a_query_that_sees_no_key_gets_zeros_and_gives_none(self, op):
        G = self.packed.G
        case = Case("no key", H=G, G=G, S=self.packed.S, T=self.packed.T)
        given = single(op, case)
        blind = given["start"] > torch.arange(case.T - case.S, case.T)
        for _ in self.instruction_sets():
            (out, *remainder), slopes = self.found(op, given)
            assert not out.transpose(1, 2)[blind].any()
            for rest in remainder:
                assert (rest.transpose(1, 2)[blind] == 1).all()
            assert not slopes["query"].transpose(1, 2)[blind].any()

    @every_fused_op
    def test_if_no_query_sees_a_key_all_is_zero(self, op):
        given = single(op, self.packed)
        given["start"] = torch.full_like(given["start"], self.packed.T)
        for _ in self.instruction_sets():
            results, slopes = self.found(op, given)
            assert not results[0].any()
            for name, gradient in slopes.items():
                assert not gradient.any(), name

    @pytest.mark.parametrize("size", [1e4, 1e8, 1e30])
    def test_large_logits_do_not_overflow(self, size):
        S, T, V = self.long.S, self.long.T, self.long.V
        given = plain(self.long)
        given["query"] = given["query"] * size
        logits = given["query"].double() @ given["key"].double().mT
        later = torch.ones(S, T, dtype=torch.bool).triu(T - S + 1)
        hardest = logits.masked_fill(later, -float("inf")).argmax(-1)
        chosen = given["value"].gather(2, hardest[..., None].expand(-1, -1, -1, V))
        for _ in self.instruction_sets():
            (out,), slopes = self.found(FUSED["softmax"], given)
            # But for the few rows whose second logit is nearly as large
            near = (out - chosen).abs().amax(-1) < 1e-6
            assert near.double().mean() > 0.9
            assert out.isfinite().all()
            for gradient in slopes.values():
                assert gradient.isfinite().all()
            # Weights are at most 1, but for the rounding of logits of 1e4
            (weights,) = cotangents((out,))
            assert (slopes["value"].abs() <= 1.01 * weights.abs().sum(2, keepdim=True)).all()

    @pytest.mark.parametrize("size", [-1e30, -1e4, 1e4, 1e30])
    def test_sticks_break_at_once_or_never(self, size):
        S, T = self.long.S, self.long.T
        given = plain(replace(self.long, D=1))
        given |= {"query": torch.ones_like(given["query"]), "scale": 1.0}
        given["key"] = torch.full_like(given["key"], size)
        broken = given["value"][:, :, T - S - 1 : T - 1]
        for _ in self.instruction_sets():
            (out, remainder), slopes = self.found(FUSED["stick_breaking"], given)
            assert_equal_up_to(1e-6, out, broken if size > 0 else torch.zeros_like(broken))
            assert_equal_up_to(1e-6, remainder, torch.full(broken.shape[:3], float(size < 0)))
            for gradient in slopes.values():
                assert gradient.isfinite().all()

    @pytest.mark.parametrize("rate", [0.0, -1e-3, -1.0, -100.0, -1e4])
    @pytest.mark.parametrize("skip", [True, False])
    def test_forgetting_at_any_rate(self, rate, skip):
        """Down to where a key forgets all before it: a gradient of 0, or the rounding of one."""
        case = replace(self.long, G=1)
        given = plain(case) | {"log_f": torch.full((case.B, case.H, case.T), rate), "skip": skip}
        for _ in self.instruction_sets():
            self.assert_near_reference(FUSED["forgetting"], given)

    def test_forgetting_far_into_a_sequence_is_as_exact_as_at_its_start(self):
        """Λ reaches −1e6, where fp32 has steps of 1/16: as differences, the logits would too."""
        given, call = plain(self.long), self.kernels(ops.forgetting_attention)
        near = given | {"log_f": -0.1 * torch.rand(self.long.B, self.long.H, self.long.T)}
        far = near | {"log_f": near["log_f"].clone()}
        far["log_f"][..., 0] = -1e6  # older than every key: it changes no difference
        for _ in self.instruction_sets():
            assert_near(call(**far), call(**near), OUTPUT)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
    def test_counts_of_many_small_gates_keep_their_fraction(self, dtype):
        """300 gates of about 1/2 add up to 150: bf16 holds that to ±1/2, fp32 to ±1e-5."""
        case = Case(B=1, H=1, G=1, S=2, T=300, D=4, V=4)
        given = cast(operands(case) | {"table": 5 * table(case, 300)}, dtype)
        given["query"] = 0.1 * given["query"]
        exact = ops.cope_attention(**cast(given, torch.float64))
        # The weights and the result are rounded; an error of 1/2 in a count is 50 times that
        allowed = 2 * torch.finfo(dtype).eps * given["value"].abs().max() + 1e-5
        for _ in self.instruction_sets():
            out = self.kernels(ops.cope_attention)(**given)
            assert (out.double() - exact).abs().max() <= allowed

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
    def test_gates_are_not_rounded_to_halves(self, dtype):
        """300 gates alike, whose rounding to bf16 would add up to half a count."""
        case = Case(B=1, H=1, G=1, S=2, T=300, D=4, V=4)
        logits = torch.linspace(0.1, 1, 500).bfloat16().double()
        off = logits.sigmoid().bfloat16().double() - logits.sigmoid()
        logit = logits[off.abs().argmax()]
        given = operands(case) | {"table": 5 * table(case, 300), "scale": 1.0}
        given["query"] = torch.eye(4)[0].double().expand_as(given["query"])
        given["key"][..., 0] = logit
        given = cast(given, dtype)
        exact = cast(given, torch.float64)
        rounded = logit.sigmoid().bfloat16().double().logit()
        wrong = ops.cope_attention(**exact, gate_keys=torch.full_like(exact["key"], rounded))
        expected = ops.cope_attention(**exact)
        # Each gate may be wrong by 2⁻²³, and a logit by all that, times a step of the table
        of_counts = case.T * 2**-23 * exact["table"].diff(dim=-2).abs().max()
        allowed = 2 * (torch.finfo(dtype).eps + of_counts) * exact["value"].abs().max()
        assert (wrong - expected).abs().max() > 5 * allowed
        for _ in self.instruction_sets():
            out = self.kernels(ops.cope_attention)(**given)
            assert (out.double() - expected).abs().max() <= allowed

    @pytest.mark.parametrize("lay", LAYOUTS.values(), ids=LAYOUTS)
    def test_operands_need_not_be_contiguous(self, some_op, lay):
        given, call = single(some_op, self.short), self.kernels(some_op.call)
        strided = {
            name: lay(x) if x.ndim > 1 else torch.stack([x, x], -1)[:, 0]
            for name, x in floating(given).items()
        }
        strided["start"] = torch.stack([given["start"], given["start"]], -1)[..., 0]
        assert any(not x.is_contiguous() for x in strided.values())
        assert_equal_up_to(0 if self.same_bits else 1e-6, call(**given | strided), call(**given))
        leaves = floating(given)

        def laid(**found):
            return call(
                **found | {name: lay(found[name]) for name in leaves if found[name].ndim > 1}
            )

        found, expected = gradients(laid, given), gradients(call, given)
        assert_gradients_near(found, expected)
        if self.same_bits:
            assert all(torch.equal(found[name], expected[name]) for name in expected)

    @every_fused_op
    def test_operands_may_be_expanded(self, op):
        """One batch, one head or one row that is repeated without memory of its own."""
        given, call = single(op, Case(S=self.packed.S, T=self.packed.S)), self.kernels(op.call)
        for axis in (0, 1, 2):
            expanded = {
                name: x.narrow(axis, 0, 1).expand_as(x)
                for name, x in floating(given).items()
                if x.ndim == 4
            }
            copies = {name: x.contiguous() for name, x in expanded.items()}
            assert_equal_up_to(0, call(**given | expanded), call(**given | copies))

    @every_fused_op
    def test_gradients_may_come_expanded_or_strided(self, op):
        given, call = single(op, self.short), self.kernels(op.call)

        def gradient(reduce):
            query = given["query"].detach().clone().requires_grad_()
            total = reduce(parts(call(**given | {"query": query}))[0])
            return torch.autograd.grad(total, query)[0]

        ones, weights = torch.ones(self.short.V), torch.randn(self.short.V, self.short.S)
        assert_near(gradient(torch.sum), gradient(lambda out: (out * ones).sum()), 1e-6)
        strided = gradient(lambda out: (out.mT * weights).sum())
        assert_near(strided, gradient(lambda out: (out * weights.T.contiguous()).sum()), 1e-6)

    @every_fused_op
    def test_operands_are_left_as_they_were(self, op):
        given = single(op, self.short)
        copies = {name: x.clone() for name, x in given.items() if isinstance(x, torch.Tensor)}
        gradients(self.kernels(op.call), given)
        assert all(torch.equal(given[name], copy) for name, copy in copies.items())

    @every_fused_op
    def test_start_may_be_short_far_and_negative(self, op):
        given, call = single(op, self.packed), self.kernels(op.call)
        assert_equal_up_to(0, call(**given | {"start": given["start"].int()}), call(**given))
        expected = call(**given | {"start": None})
        for dtype in (torch.int32, torch.int64):
            limits, start = torch.iinfo(dtype), given["start"].to(dtype)
            everything = call(**given | {"start": torch.full_like(start, limits.min)})
            assert_near(everything, expected, OUTPUT)
            if self.same_bits:
                assert_equal_up_to(0, everything, expected)
            never = call(**given | {"start": torch.full_like(start, limits.max)})
            assert not parts(never)[0].any()

    @pytest.mark.parametrize("case", EMPTY.values(), ids=EMPTY)
    @every_fused_op
    def test_without_numbers_it_is_refused(self, op, case):
        given = cast(op.operands(case), torch.float32)
        with pytest.raises(UsageError, match=f"^{self.backend} refused: needs at least one "):
            self.kernels(op.call)(**given)

    @every_fused_op
    def test_fp64_is_refused(self, op):
        refused = f"^{self.backend} refused: computes in float32, got float64"
        with pytest.raises(UsageError, match=refused):
            self.kernels(op.call)(**op.operands(Case()))

    @every_fused_op
    def test_grouped_heads_are_heads_whose_keys_are_repeated(self, op):
        G = self.packed.G
        case = Case(B=self.long.B, H=3 * G, G=G, S=self.packed.S, T=self.packed.T)
        given = single(op, case)
        shared = given.keys() & {"key", "value", "gate_keys"}
        repeated = given | {name: given[name].repeat_interleave(3, 1) for name in shared}
        for _ in self.instruction_sets():
            results, slopes = self.found(op, given)
            expected, expected_slopes = self.found(op, repeated)
            assert_near(results, expected, OUTPUT)
            for name in shared:
                expected_slopes[name] = expected_slopes[name].unflatten(1, (G, 3)).sum(2)
            assert_gradients_near(slopes, expected_slopes)

    @every_fused_op
    def test_the_last_queries_over_cached_keys_are_the_last_of_all(self, op):
        case = replace(self.packed, start="window", S=self.packed.T)
        given, call = single(op, case), self.kernels(op.call)
        for _ in self.instruction_sets():
            whole = parts(call(**given))
            for S in self.lasts:
                expected = tuple(part[:, :, -S:] for part in whole)
                assert_near(call(**last(case, S, given)), expected, OUTPUT)

    @every_fused_op
    def test_no_query_sees_a_later_key(self, op):
        case = replace(self.long, B=1)
        given, call = single(op, case), self.kernels(op.call)
        for _ in self.instruction_sets():
            before = parts(call(**given))
            for cut in self.later:  # the first key that is another one
                changed, row = dict(given), cut - (case.T - case.S)
                for name in [name for name in OVER_KEYS if name in given]:
                    changed[name] = given[name].clone()
                    changed[name][:, :, cut:] = -torch.rand_like(given[name][:, :, cut:])
                for one, other in zip(before, parts(call(**changed)), strict=True):
                    assert_near(one[:, :, :row], other[:, :, :row], OUTPUT)
                    assert (one[:, :, row:] != other[:, :, row:]).any()

    def test_gates_that_stay_open_forget_nothing(self):
        given, case = plain(self.packed), self.packed
        log_f = torch.zeros(case.B, case.H, case.T)
        forgetting = self.kernels(ops.forgetting_attention)
        for _ in self.instruction_sets():
            expected = self.kernels(ops.softmax_attention)(**given)
            for skip in (True, False):
                assert_near(forgetting(**given, log_f=log_f, skip=skip), expected, OUTPUT)

    def with_open_gates(self):
        """Operands of `packed`, and gates of CoPE's that count every key."""
        case = self.packed
        given, gate_keys = plain(case), torch.zeros(case.B, case.G, case.T, case.D)
        given["query"][..., 0] = 1
        gate_keys[..., 0] = 100
        return given, {"gate_keys": gate_keys, "gate_scale": 1.0}

    @pytest.mark.parametrize("rows", [2, 4, 30, 70, 200])
    @pytest.mark.parametrize("skip", [True, False])
    def test_cope_with_open_gates_is_relative_attention(self, rows, skip):
        """Positions are then i − j + 1, from the query's own 1 on: row 0 is not used."""
        given, gates = self.with_open_gates()
        e = 0.1 * table(self.packed, rows).float()
        for _ in self.instruction_sets():
            found = self.kernels(ops.cope_attention)(**given, **gates, table=e, skip=skip)
            expected = self.kernels(ops.relative_attention)(**given, table=e[1:])
            assert_near(found, expected, OUTPUT)

    def test_cope_alibi_with_open_gates_is_alibi(self):
        given, gates = self.with_open_gates()
        slopes = -0.1 * torch.rand(self.packed.H)
        by_distance = slopes[:, None] * torch.arange(float(self.packed.T))
        for _ in self.instruction_sets():
            found = self.kernels(ops.cope_alibi_attention)(**given, **gates, slopes=slopes)
            expected = self.kernels(ops.bias_attention)(**given, bias=by_distance)
            assert_near(found, expected, OUTPUT)

    @pytest.mark.parametrize("name", ["bias dense", "cope"])
    def test_one_tensor_may_be_several_operands(self, name):
        """Values that are keys, and a bias or gate keys that are them too: gradients add up."""
        if name == "cope":
            case, other = replace(self.packed, start="window", V=self.packed.D), "gate_keys"
            given = single(OPS[name], case) | {"gate_scale": 0.3}
        else:
            other = "bias"
            given = plain(Case(H=2, G=2, S=6, T=6, D=6, V=6))
        del given["value"]

        def shared(call):
            return lambda key, **rest: call(key=key, value=key, **{other: key}, **rest)

        exact, written = cast(given, torch.float64), shared(OPS[name].call)
        for _ in self.instruction_sets():
            call = shared(self.kernels(OPS[name].call))
            assert_near(call(**given), written(**exact), OUTPUT)
            assert_gradients_near(gradients(call, given), gradients(written, exact))
