from milepost.bench import memory
from milepost.bench.cases import Case


def test_the_peak_of_all_pairs_is_seen():
    case = Case("softmax", "typical", 64, 512, 1)
    found = memory.peak("milepost", case, backend="reference", dtype="float32", isa=None)
    assert "failure" not in found
    assert found["results"] == 4 * 8 * 512 * 64 * 4  # the output and three gradients, fp32
    pairs = 8 * 512 * 512 * 4
    # at the least the weights, and their gradient beside them
    assert found["bytes"] > 2 * pairs
    assert found["bytes"] < 20 * pairs


def test_a_process_that_fails_says_why(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    case = Case("softmax", "typical", 8, 16, 1)
    found = memory.peak("milepost", case, backend="triton", dtype="float32", isa=None)
    assert "UsageError: triton refused: needs cuda tensors, got cpu" in found["failure"]


def test_without_proc_the_maximum_so_far_is_taken(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "PEAK_RESET", tmp_path / "no" / "clear_refs")
    case = Case("stick_breaking", "typical", 8, 32, 1)
    found = memory.measure("milepost", case, backend="reference", dtype="bfloat16", isa=None)
    assert found["how"] == "ru_maxrss"
    assert found["bytes"] >= 0
