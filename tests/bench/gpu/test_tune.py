"""Tuning: which candidates there are, which of them wins, and what is printed of them."""

import json
from typing import Any

import pytest

from milepost.bench.cases import SUBJECTS, Shape
from milepost.bench.gpu import tune, worker
from milepost.bench.gpu.device import Cpu
from milepost.ops.triton._blocks import TABLE, Sizes, blocks, row


def test_tuning_takes_the_fastest_that_is_right(kernels, planned, monkeypatch):
    best = {"forward": [128, 64, 8, 2, 256], "backward_query": [64, 64, 8, 2, 256]}

    def seconds(self: Any, job: Any, chosen: Any, direction: str, shape: Any) -> Any:
        for index, one in enumerate(chosen):
            for _ in range(2):
                yield index, 0.5 if any(best.get(k) == v for k, v in one.items()) else 1.0

    monkeypatch.setattr(tune.Tuner, "seconds", seconds)
    chosen = planned(ops="softmax,cope", head_dims="64", dtype="bfloat16")
    saved: list[Any] = []
    record = tune.run(
        chosen,
        Cpu(),
        pool=worker.here(Cpu()),
        clock=lambda: 0.0,
        save=lambda found: saved.append(json.dumps(found)),
        watch=print,
        timed=Shape(1, 2, 2, 32, 32, 64),
        cache=Shape(1, 2, 2, 1, 32, 64),
    )
    assert record["finished"]
    assert record["failures"] == []
    assert saved
    won = {one["row"]: (one["op"], one["blocks"]) for one in record["winners"]}
    assert won["forward, plain"] == ("softmax", [128, 64, 8, 2, 256])
    assert won["forward, cope"] == ("cope", [128, 64, 8, 2, 256])
    assert won["backward_query, plain"] == ("softmax", [64, 64, 8, 2, 256])
    assert won["band_query, cope"][0] == won["band_key, cope"][0] == "cope"
    # what it prints is the table, with the winners in it
    table = eval("{" + tune.text(record) + "}")
    assert list(table) == [("sm_90", 2)]
    (found,), present = table.values(), TABLE["sm_90", 2]
    assert list(found) == list(present)
    assert found["forward, cope"] == ((128, 64, 8, 2), *present["forward, cope"][1:])
    assert found["forward, stick"] == present["forward, stick"]


def test_a_candidate_is_checked_and_timed_with_its_blocks(kernels, planned):
    seen: dict[bool, set[Any]] = {True: set(), False: set()}
    right = kernels["softmax"].attend
    timed = Shape(1, 2, 2, 32, 32, 64)

    def look(**operands: Any) -> Any:
        is_timed = operands["query"].shape[2] == timed.S
        seen[is_timed].add(tuple(blocks("forward", Sizes("softmax", 64, 2))))
        return right(**operands)

    kernels["softmax"].attend = look
    record: dict[str, Any] = {"tried": [], "winners": [], "together": []}
    tuner = tune.Tuner(planned(), Cpu(), worker.here(Cpu()), lambda: 0.0, record, timed, timed)
    (job,) = tune.jobs(planned(ops="softmax", head_dims="64", dtype="bfloat16"))
    tuner.tune(job, 100.0)
    for taken in seen.values():
        assert {(*one, 256) for one in tune.FORWARD_BLOCKS} <= taken


def test_each_row_of_the_table_is_tuned_once(planned):
    found = tune.jobs(planned(ops=",".join(SUBJECTS), head_dims="64,128", dtype="bfloat16"))
    rows = [
        (job["head_dim"], row(kernel, tune.sizes(job)))
        for job in found
        for kernel in job["kernels"]
    ]
    assert sorted(rows) == sorted((D, name) for D in (64, 128) for name in TABLE["sm_90", 2])


@pytest.mark.parametrize("op", ["softmax", "cope", "cope_separate", "stick_breaking"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_candidates_keep_the_kernels_conditions(op, dtype, planned):
    (job,) = tune.jobs(planned(ops=op, head_dims="64", dtype=dtype))
    assert sorted(job["kernels"]) == sorted(tune.kernels(op))
    now = tune.present(job, {})
    for stage in tune.stages(job):
        found = tune.candidates(job, stage, {})
        assert found[0] == {kernel: now[kernel] for kernel in stage}
        assert len(found) > 1
        for one in found:
            assert len({blocks[1] for blocks in one.values()}) == 1 or one == found[0]
            assert tune.fits(op, now | one)
