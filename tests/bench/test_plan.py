import dataclasses

import pytest

from milepost.bench.cases import SUBJECTS
from milepost.bench.plan import limits_from, memory_limit_from, threads_from
from milepost.errors import UsageError
from milepost.machine import cores
from milepost.ops import native


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ops": ["coep"]}, "unknown name for ops 'coep': did you mean 'cope'"),
        (
            {"lengths": "512,1k"},
            "lengths must be whole numbers .* got '1k': write them as 512,1024",
        ),
        ({"lengths": "0"}, "lengths must be whole numbers from 1 on, .* got '0'"),
        ({"lengths": "512,,1024"}, "lengths must be words .* leave none of them empty"),
        ({"head_dims": "1"}, "head-dims must be at least 2, got 1"),
        ({"threads": "none"}, "threads must be whole numbers .* got 'none': write them as 1,all"),
        ({"threads": "100000"}, f"threads must be at most the cores .* {cores()}, got 100000"),
        ({"caches": "x"}, "caches must be whole numbers"),
        ({"dtype": "float8"}, "unknown dtype 'float8': .* valid: bfloat16, float32"),
        ({"backend": "triton"}, "unknown backend 'triton'"),
        ({"isa": "avx2"}, "isa chooses .* got 'avx2' with backend 'reference': leave one"),
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"seconds": float("nan")}, "seconds must be a number from 0 on, got nan"),
        ({"memory_limit": -1.0}, "memory-limit must be a number of GiB from 0 on, got -1.0"),
    ],
)
def test_a_mistake_names_its_argument(planned, changes, message):
    with pytest.raises(UsageError, match=message):
        planned(**changes)


def test_an_unknown_variant_is_refused(planned, kernels):
    with pytest.raises(UsageError, match="unknown isa 'x86-64-v5': did you mean 'x86-64-v"):
        planned(backend="native", isa="x86-64-v5")
    assert planned(backend="native", isa="x86-64-v3").isa == "x86-64-v3"


def test_without_kernels_the_reason_and_the_remedy(planned, monkeypatch):
    monkeypatch.setattr(native, "missing", lambda: "no compiler was there")
    with pytest.raises(UsageError, match=r"backend .* got 'native', but no compiler was there: .*"):
        planned(backend="native")


def test_numbers_are_sorted_and_ops_keep_their_order(planned):
    plan = planned(lengths="64, 16,64", ops=["softmax", "bias"], threads="all,1")
    assert plan.lengths == (16, 64)
    assert plan.ops == ("softmax", "bias")
    assert plan.threads == tuple(sorted({1, cores()}))
    assert threads_from("all") == (cores(),)


def test_every_op_is_measured_if_none_is_named(planned):
    plan = planned(ops=None)
    assert {case.op for case in plan.cases()} == set(plan.ops)
    assert plan.ops == tuple(SUBJECTS)


def test_a_few_lengths_are_chosen_for_memory(planned):
    plan = planned(lengths="512,1024,2048,4096,8192,16384", peak_memory=True, ops=["bias"])
    assert [case.keys for case in plan.memory_cases()] == [2048, 4096, 8192]
    plan = planned(lengths="16384,32768", peak_memory=True, ops=["bias"])
    assert [case.keys for case in plan.memory_cases()] == [16384]
    assert planned(lengths="16").memory_cases() == []


def test_a_longer_case_is_expected_to_take_longer(planned):
    plan = dataclasses.replace(planned(lengths="512,16384"), limits=limits_from(40, 20))
    short, long, *_ = (plan.expected_seconds(case) for case in plan.cases())
    assert 0 < short < 2 * plan.limits.seconds < long


def test_limits_are_taken_as_they_are():
    limits = limits_from(3, 1.5)
    assert (limits.most, limits.fewest, limits.seconds) == (3, 3, 1.5)
    assert memory_limit_from(1.5) == 3 * 2**29
    assert memory_limit_from(None) > 2**20
