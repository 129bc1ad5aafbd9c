import time
from dataclasses import replace

import pytest
import torch

from milepost import machine, studies
from milepost.errors import UsageError
from milepost.files import write_json
from milepost.report import forecast as shown
from milepost.study import forecast as forecasts
from milepost.study import work
from milepost.study.forecast import AS_OTHERS, Forecast, Speed, forecast
from milepost.study.plan import grid_of, plan

STUDY = studies.load("cope-table2")


@pytest.fixture
def grid(tiny):
    return grid_of(STUDY, "mini", ["rope", "cope"], 2)


def foretold(grid, directory, **options):
    options = {"places": 2, "threads": 1, "device": "cpu", **options}
    return forecast(grid, plan(grid, directory), directory, **options)


def test_a_given_speed_is_that_of_training(grid, tmp_path):
    found = foretold(grid, tmp_path, tokens_per_second=10.0)
    assert len(found.entries) == 4
    flip_flop = next(one for one in found.entries if one.arm == "flip-flop")
    (cell, _) = flip_flop.cells
    # 3 steps of 2 sequences of 7 tokens that are read, and what the tests cost beside it
    assert flip_flop.seconds * cell.training_cost / cell.cost == pytest.approx(3 * 2 * 7 / 10)
    assert flip_flop.speed.how == "at 10 tokens/s"
    assert found.seconds == pytest.approx(sum(2 * one.seconds for one in found.entries))
    assert found.seconds / 2 <= found.until_done < found.seconds


@pytest.mark.parametrize("study", ["cope-table8", "tape-table6"])
def test_a_given_speed_reads_no_corpus_and_learns_no_tokens(study, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a corpus was read")

    monkeypatch.setattr("milepost.corpus.load", refuse)
    monkeypatch.setattr("milepost.tasks.text.Text.tokenizer", property(refuse))
    rows = studies.load(study).encodings[:1]
    (entry,) = foretold(
        grid_of(studies.load(study), "paper", rows, 1), tmp_path, tokens_per_second=1e5
    ).entries
    assert entry.seconds > 3600
    assert entry.parameters > 10**8


def test_an_extension_reads_as_many_tokens_as_it_costs(tmp_path):
    grid = grid_of(studies.load("tape-table2"), "mini", ["lora"], 1)
    found = foretold(grid, tmp_path, tokens_per_second=100.0)
    for one in found.entries:
        assert one.seconds == pytest.approx(one.cells[0].cost / 300)


def test_costs_take_as_long_as_they_measure_and_as_counting_one_does(tmp_path, monkeypatch):
    grid = grid_of(studies.load("tape-table3"), "mini", ["rope", "cope"], 1)
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(forecasts.CostCell, "count", lambda _: now.append(now.pop() + 2.5))
    found = foretold(grid, tmp_path)
    assert found.seconds == pytest.approx(2 * (3 * grid[0].sizes.seconds + 2.5))
    assert {one.speed.how for one in found.entries} == {
        "as long as it measures, and 2.5 s to count it, as the first took"
    }


def test_a_speed_of_training_is_refused_where_nothing_is_trained(tmp_path):
    grid = grid_of(studies.load("tape-table3"), "mini", ["rope"], 1)
    with pytest.raises(UsageError, match=r"got 100 for a study that trains nothing: leave it out"):
        foretold(grid, tmp_path, tokens_per_second=100.0)


def test_finished_cells_of_such_a_machine_tell(grid, tmp_path):
    (first, *_), here = grid, {"processor": machine.processor(), "device": "cpu"}
    result = {**{name: {} for name in first.result_names}, "seconds": 40.0}
    for cell, ran in ((first, here), (grid[1], {**here, "device": "cuda"})):
        write_json(work.result_file(cell, tmp_path), {**result, "machine": ran})
    speeds = forecasts._results(grid, tmp_path, "cpu")
    assert speeds == {(first.arm, first.encoding): Speed(40.0 / first.cost, "by 1 finished here")}
    damaged = work.result_file(first, tmp_path)
    damaged.write_text("{}")
    assert forecasts._results(grid, tmp_path, "cpu") == {}


def test_what_is_measured_is_the_time_of_steps(grid, tmp_path, monkeypatch):
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    took = []

    def timed(stepper, step, device):
        batch = stepper.take(step).batches[0]
        took.append(len(batch.tokens))
        return 0.01 + 0.005 * len(batch.tokens)

    monkeypatch.setattr(forecasts, "_timed", timed)
    found = foretold(grid, tmp_path)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), state)
    assert {one.speed.how for one in found.entries} == {"measured"}
    for one in found.entries:
        cell = one.cells[0]
        steps = forecasts._step_cost(forecasts._piece(cell, 1, 2))
        assert one.speed.pace == pytest.approx(0.02 / steps)
        assert one.parameters == sum(
            p.numel() for p in forecasts.build_model(cell.settings, cell.task).parameters()
        )
        assert one.memory > 16 * one.parameters
    assert max(took) == 2


def test_what_takes_too_long_is_measured_in_part(grid, monkeypatch):
    cell = grid[0]
    settings = replace(cell.settings, batch=100, model={**cell.settings.model, "layers": 3})
    cell = replace(cell, settings=settings)
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def steps(piece, device, until):
        batch, layers = piece.settings.batch, piece.settings.model["layers"]
        seconds = layers * (0.5 + 0.1 * batch)
        now[0] += 2 * seconds
        return seconds, 10.0 * layers * batch

    monkeypatch.setattr(forecasts, "_steps", steps)
    whole = 3 * (0.5 + 0.1 * 100)

    def measured(seconds):
        speed = forecasts._of_cell(cell, torch.device("cpu"), seconds)
        cost = forecasts._step_cost(forecasts._piece(cell, 3, 100))
        return speed.pace * cost / whole, speed.how, speed.activations

    assert measured(1000.0) == (pytest.approx(1.0), "measured", 3000.0)
    assert measured(25.0) == (pytest.approx(1.0), "measured with 16 of 100 sequences", 3000.0)
    one_sequence = measured(5.0)
    assert one_sequence[0] > 1  # its fixed part is multiplied up
    assert one_sequence[1] == "measured with 1 of 100 sequences"
    assert measured(0.0)[1] == "measured with 1 of 100 sequences, 1 of 3 layers"


def test_the_rest_is_as_the_others(grid, tmp_path, monkeypatch):
    monkeypatch.setattr(forecasts, "MEASURING_SECONDS", 0.0)
    monkeypatch.setattr(forecasts, "_steps", lambda *_: (1.0, 1.0))
    unknown = foretold(grid, tmp_path)
    assert (unknown.seconds, unknown.until_done) == (None, None)
    speeds = {("flip-flop", "rope"): Speed(2.0, "measured")}
    keys = dict.fromkeys([*speeds, ("flip-flop", "cope"), ("selective-copy", "rope")])
    found = forecasts._as_others(keys, speeds)
    assert set(found.values()) == {Speed(2.0, AS_OTHERS)}
    assert found.keys() == keys.keys() - speeds.keys()


def test_a_speed_of_nothing_is_refused(grid, tmp_path):
    with pytest.raises(UsageError, match="tokens_per_second must be above 0, got 0"):
        foretold(grid, tmp_path, tokens_per_second=0.0)


def test_people_are_told_what_is_known_and_what_is_not(grid, tmp_path):
    work.write_failure(grid[0], tmp_path, "no memory")
    found = plan(grid, tmp_path)
    expected = foretold(grid, tmp_path, tokens_per_second=10.0)
    said = " ".join(shown.summary(found, expected, len(grid)))
    assert "7 of 8 runs to do, 0 finished, 1 failed before" in said
    assert "of one machine run by run" in said
    assert "Measured" not in said
    unknown = Forecast([], None, None, 1, 1, "cpu", 0.0, 0.0)
    assert "give --tokens-per-second" in " ".join(shown.summary(found, unknown, len(grid)))
    assert shown.table(expected).row_count == len(expected.entries)


def test_what_trains_nothing_is_given_no_speed(tmp_path):
    (tmp_path / "model").mkdir()
    study = studies.load("tape-table9").with_settings({"lora": str(tmp_path / "model")})
    grid = grid_of(study, "paper", None, None)
    expected = foretold(grid, tmp_path)
    said = [*shown.summary(plan(grid, tmp_path), expected, len(grid))]
    assert said == [
        "1 of 1 run to do, 0 finished.",
        "Time: not known.",
        "Speed of an arm and row, and of how many so: not known (1).",
    ]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "?"),
        (0.31, "0.31 s"),
        (89, "89 s"),
        (300, "5 min"),
        (9000, "2.5 h"),
        (4e6, "1,111 h"),
    ],
)
def test_times(seconds, said):
    assert shown.time(seconds) == said


def test_sizes():
    assert [shown.size(n) for n in (2e3, 3.5e6, 1.2e9)] == ["2 kB", "3.5 MB", "1.2 GB"]
