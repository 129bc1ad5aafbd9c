import json

import pytest
import torch

from milepost.bench import contenders, results
from milepost.bench.cpu import run
from milepost.ops import dispatch, native


def half_wrong(**operands):
    for name in dispatch.UNKNOWN_TO_REFERENCE:
        operands.pop(name, None)
    return 0.5 * dispatch.implementation("reference", "cope").attend(**operands)


def refusing(reason):
    return lambda **operands: reason


def test_a_run_records_all_that_is_asked_for(planned, tmp_path):
    path = tmp_path / "deep" / "result.json"
    news = []
    record = run(
        planned(ops=["cope", "forgetting"], caches="32", reference=True),
        path,
        watch=lambda progress, line: news.append((progress, line)),
    )
    assert json.loads(path.read_text()) == record == results.load(path)
    assert record["finished"]
    assert list(results.failures(record)) == []
    assert record["isa"] is None
    assert record["arguments"]["lengths"] == [16, 24]
    assert record["versions"].keys() == {"milepost", "torch", "python"}
    assert record["source"].keys() == {"commit", "dirty"}
    assert record["machine"]["processor"]

    timed = [(c["op"], c["gates"], c["keys"], c["decode"]) for c in record["cases"]]
    kinds = ("typical", "never saturating")
    assert timed == [
        *((op, g, T, False) for op in ("cope", "forgetting") for g in kinds for T in (16, 24)),
        *((op, g, 32, True) for op in ("cope", "forgetting") for g in kinds),
    ]
    for case in record["cases"]:
        directions = ["forward"] if case["decode"] else ["forward", "forward+backward"]
        assert list(case["directions"]) == directions
        assert case["queries"] == (1 if case["decode"] else case["keys"])
        for measured in case["directions"].values():
            expected = {"milepost", "sdpa", "plain"}
            if case["op"] == "cope" and not case["decode"]:
                expected |= {"listing"}
            assert measured.keys() - {"x-transformers"} == expected
            for one in measured.values():
                assert len(one["seconds"]) == len(one["ratios"]) == 2
                assert one["minimum"] <= one["median"] <= max(one["seconds"]) * 1.001

    shares = [progress.share for progress, _ in news]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
    assert news[0][0].seconds_left is None
    assert all(p.seconds_left is not None for p, _ in news if p.share)


def test_the_number_of_threads_is_put_back(planned, tmp_path):
    assert torch.get_num_threads() == 1
    seen = []
    plan = planned(threads="1,all", rounds=1, lengths="16", ops=["softmax"])
    run(
        plan,
        tmp_path / "result.json",
        watch=lambda progress, line: seen.append(torch.get_num_threads()),
    )
    assert set(seen) == set(plan.threads)
    assert torch.get_num_threads() == 1


def test_a_wrong_kernel_is_not_timed(planned, kernels, tmp_path):
    kernels["cope"].attend = half_wrong
    record = run(planned(backend="native", ops=["cope", "forgetting"]), tmp_path / "result.json")
    assert {case["op"] for case in record["cases"]} == {"forgetting"}
    wrong = [check for check in record["checks"] if check["verdict"] != "right"]
    assert {check["op"] for check in wrong if check["contender"] == "milepost"} == {"cope"}
    failures = list(results.failures(record))
    assert len(failures) == 2  # for both kinds of gates
    assert all("wrong, not timed" in failure and "output" in failure for failure in failures)


def test_a_kernel_that_refuses_is_not_timed(planned, kernels, tmp_path):
    kernels["cope"].refusal = refusing("no bfloat16 yet")
    record = run(planned(backend="native", dtype="bfloat16"), tmp_path / "result.json")
    assert record["cases"] == []
    assert all("no bfloat16 yet" in failure for failure in results.failures(record))
    assert len(list(results.failures(record))) == 2


def test_a_wrong_plain_kernel_is_no_yardstick(planned, kernels, tmp_path):
    def double(**operands):
        return 2 * dispatch.implementation("reference", "softmax").attend(**operands)

    kernels["softmax"].attend = double
    record = run(planned(backend="native", ops=["forgetting"]), tmp_path / "result.json")
    assert len(record["cases"]) == 4
    for case in record["cases"]:
        assert case["directions"]["forward"].keys() == {"milepost", "sdpa"}
        assert "the plain kernel was wrong" in case["left_out"]["plain"]
    # it was not asked for
    assert list(results.failures(record)) == []


def test_the_variant_is_in_use_and_recorded(planned, kernels, tmp_path):
    seen = []
    record = run(
        planned(backend="native", isa="x86-64-v3", lengths="16"),
        tmp_path / "result.json",
        watch=lambda progress, line: seen.append(native.isa()),
    )
    assert set(seen) == {"x86-64-v3"}
    assert record["isa"] == "x86-64-v3"
    assert native.isa() == "x86-64-v4"
    record = run(planned(backend="native", lengths="16"), tmp_path / "other.json")
    assert record["isa"] == "x86-64-v4"


@pytest.mark.parametrize("after", [0, 1, 4, 5])
def test_a_run_that_is_stopped_leaves_what_was_measured(planned, tmp_path, after):
    path = tmp_path / "result.json"
    finished = []

    def watch(progress, line):
        finished.append(line)
        if len([line for line in finished if line is not None]) > after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(planned(), path, watch=watch)
    record = results.load(path)
    assert not record["finished"]
    # two checks of the plain kernel's and cope's gates come first, then two of the baselines
    assert len(record["checks"]) + len(record["cases"]) == after + 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


def test_stopped_amid_a_case_nothing_of_it_is_left(planned, tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    calls = []

    def interrupted(self):
        calls.append(self)
        if len(calls) > 20:
            raise KeyboardInterrupt
        return self.call(**self.given)

    monkeypatch.setattr(contenders.Contender, "forward", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(planned(rounds=40), path)
    assert results.load(path)["cases"] == []


def test_a_case_that_fails_leaves_the_others(planned, tmp_path, monkeypatch):
    build = contenders.build

    def fails(name, case, setting, given):
        if case.keys == 16:
            raise RuntimeError("no memory for this")
        return build(name, case, setting, given)

    monkeypatch.setattr(contenders, "build", fails)
    record = run(planned(), tmp_path / "result.json")
    assert ["failure" in case for case in record["cases"]] == [True, False, True, False]
    assert len(list(results.failures(record))) == 2


def test_what_needs_too_much_memory_is_left_out(planned, tmp_path):
    # 24 numbers of 4 bytes for 8 heads and 16² pairs are 192 KiB; for 24² pairs, 432 KiB
    limit = 300 * 2**10
    setting = contenders.Setting("native", torch.float32, limit)
    for case in planned().cases():
        names, reasons = contenders.names(case, setting)
        assert ("listing" in names) == (case.keys == 16)
        assert ("listing" in reasons) == (case.keys == 24)
    record = run(planned(memory_limit=limit / 2**30), tmp_path / "result.json")
    assert [bool(case["directions"]) for case in record["cases"]] == [True, False, True, False]
    assert "the limit is" in record["cases"][1]["left_out"]["milepost"]
    # a limit is no failure
    assert list(results.failures(record)) == []


def test_memory_is_taken_for_a_few_lengths(planned, tmp_path, monkeypatch):
    asked = []

    def peak(name, case, **given):
        asked.append((name, case.keys, given["backend"], given["dtype"], given["isa"]))
        if name == "listing":
            return {"failure": "killed by signal 9"}
        return {"bytes": 2**20 * case.keys, "results": 0, "how": "VmHWM"}

    monkeypatch.setattr("milepost.bench.memory.peak", peak)
    plan = planned(lengths="8,16,32,64", peak_memory=True, ops=["cope", "forgetting"])
    record = run(plan, tmp_path / "result.json")
    assert {keys for _, keys, *_ in asked} == {16, 32, 64}
    assert len([one for one in asked if one[0] == "sdpa"]) == 3  # shared by the ops
    assert {one[2:] for one in asked} == {("reference", "float32", None)}
    assert len([failure for failure in results.failures(record) if "signal 9" in failure]) == 3
    grown = {(one.op, one.contender): one.power for one in results.growth(record)}
    assert grown["cope", "sdpa"] == grown["forgetting", "milepost"] == pytest.approx(1)
