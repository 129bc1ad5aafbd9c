"""A study of costs on models too small to be slow: what is kept, and how times are taken."""

import json
from dataclasses import replace

import pytest
import torch

from milepost import encoding, studies
from milepost.errors import UsageError
from milepost.files import digest
from milepost.model import Config
from milepost.report import costs as report
from milepost.study import work
from milepost.study.costs import cell as cost_cell
from milepost.study.costs.cell import paired, said_of
from milepost.study.costs.count import count
from milepost.study.costs.study import BASE, MEASURED, PARTS, Sizes

STUDY = studies.load("tape-table3")
MODEL = {"vocab_size": 11, "dim": 16, "layers": 2, "heads": 2}
SIZES = Sizes(model=MODEL, length=6, device="cpu", rounds=3, least=2, seconds=0.01)
TINY = replace(STUDY, counted=MODEL, counted_length=8, scales={"mini": SIZES})


def run_alone(cell, directory, stop=lambda: False):
    cell.run(directory, report=lambda _: None, stop=stop)
    path = work.result_file(cell, directory)
    return json.loads(path.read_text()) if path.exists() else None


@pytest.mark.parametrize("row", ["rope", "tape-released", "cope-mlp", "shifted-sparse"])
def test_a_cell(tmp_path, row):
    cell = TINY.cell("mini", "costs", row, 0)
    result = run_alone(cell, tmp_path)
    assert set(result) == set(MEASURED)
    options = {"variant": "released"} if row == "tape-released" else {}
    name = "tape" if row == "tape-released" else row
    config = Config(**MODEL, max_length=8, encoding=name, encoding_options=options)
    assert result["counted"] == count(config, 8).to_dict()
    assert list(result["measured"]) == list(PARTS)
    for part in result["measured"].values():
        assert 2 <= len(part["ratios"]) <= 3
        assert part["tokens_per_second"] == round(6 / part["seconds"])
    assert result["machine"]["device"] == "cpu"
    if row == "cope-mlp":
        assert result["kernels"] == "reference"


def test_a_stopped_cell_leaves_nothing(tmp_path):
    assert run_alone(TINY.cell("mini", "costs", "rope", 0), tmp_path, stop=lambda: True) is None


def test_every_encoding_has_a_row_and_tape_two():
    assert {row.encoding for row in STUDY.rows} == set(encoding.names())
    assert len(STUDY.rows) == len(encoding.names()) + 1
    assert all(row.name == row.encoding for row in STUDY.rows if row.name != "tape-released")


def test_the_grid_begins_with_rope():
    grid = TINY.cells("mini", ["tape", "t5", "tape"], 2)
    assert [(cell.encoding, cell.seed) for cell in grid] == [
        *((name, 0) for name in (BASE, "tape", "t5")),
        *((name, 1) for name in (BASE, "tape", "t5")),
    ]
    assert len({cell.hash for cell in grid}) == len(grid)
    assert grid[1].hash == digest(grid[1].describe())
    assert STUDY.alone


def test_the_hash_knows_the_sizes():
    cell, other = (
        study.cell("mini", "costs", "t5", 0) for study in (TINY, TINY.with_settings({"length": 7}))
    )
    assert cell.hash != other.hash
    assert TINY.cell("mini", "costs", "gone", 0) is None
    assert TINY.cell("mini", "other", "t5", 0) is None


def test_settings():
    sizes = TINY.with_settings({"dim": 32, "rounds": 9}).sizes("mini")
    assert (sizes.model["dim"], sizes.rounds, sizes.length) == (32, 9, 6)
    with pytest.raises(UsageError, match="setting 'length' must be a whole number above 0"):
        TINY.with_settings({"length": 0.5}).sizes("mini")
    with pytest.raises(UsageError, match="precision"):
        TINY.with_settings({"precision": "fp8"}).sizes("mini")
    with pytest.raises(UsageError, match="dims"):
        TINY.with_settings({"dims": 3}).cells("mini", ["rope"], 1)
    with pytest.raises(UsageError, match="scale"):
        TINY.sizes("huge")
    with pytest.raises(UsageError, match="row"):
        TINY.cells("mini", ["nope"], 1)


@pytest.mark.parametrize("row", STUDY.encodings)
def test_every_row_runs_in_bf16(row):
    """As at paper scale: each part, through gradients of every parameter that is used."""
    cell = TINY.with_settings({"precision": "bf16"}).cell("mini", "costs", row, 0)
    model = cell.model(cell.row, torch.device("cpu"))
    tokens = torch.arange(6)[None]
    attended, _ = cost_cell.attention(model, tokens)()
    assert attended.shape == (1, 6, 16)
    assert cost_cell.forward(model, tokens)().shape == (1, 6, 11)
    assert cost_cell.training(model, tokens)().isfinite()
    assert model.blocks[0].attention.query.weight.grad is not None


class Machine:
    """A clock by which each contender takes its own time, and the second call less than the first.

    It counts what was called, in order.
    """

    def __init__(self):
        self.now, self.called = 0.0, []

    def call(self, name, seconds):
        def call():
            self.called.append(name)
            self.now += seconds

        return call


def test_paired_rounds():
    machine = Machine()
    ours, base = machine.call("ours", 3.0), machine.call("base", 2.0)
    sizes = replace(SIZES, rounds=4, seconds=1e9, calls=2)
    taken = paired(ours, base, sizes, torch.device("cpu"), lambda: False, clock=lambda: machine.now)
    assert taken == ([3.0] * 4, [2.0] * 4)
    timed = machine.called[2 * cost_cell.WARM_CALLS :]
    assert timed[::2] == ["ours", "base", "base", "ours"] * 2
    assert said_of(*taken, tokens=6) == {
        "ratios": [1.5] * 4,
        "seconds": 3.0,
        "base_seconds": 2.0,
        "tokens_per_second": 2,
    }


def test_rounds_end_when_time_is_up():
    machine = Machine()
    sizes = replace(SIZES, rounds=40, least=3, seconds=0.5)
    taken = paired(
        machine.call("ours", 1.0),
        machine.call("base", 1.0),
        sizes,
        torch.device("cpu"),
        lambda: False,
        clock=lambda: machine.now,
    )
    assert len(taken[0]) == 3


def test_the_paper_is_counted_to_its_last_digit():
    """Table 3's MACs and parameters of the rows that we have as the paper has them."""
    (paper,) = (figures for figures in STUDY.figures if figures.source == "Table 3")
    settings = {**STUDY.counted, "max_length": STUDY.counted_length}
    for row in ("rope", "fire"):
        counted = count(Config(**settings, encoding=row), STUDY.counted_length)
        macs, parameters = (
            round(one, 2) for one in (counted.macs / 1e9, counted.parameters / 2**20)
        )
        assert (macs, parameters) == paper.rows[row][1:]
        # twice the MACs, and one for each number out of softmax, SiLU, and FIRE's ReLU
        T, layers, heads = STUDY.counted_length, 12, 12
        others = layers * (T * T * heads + T * 3072) + (row == "fire") * layers * T * T * 32
        assert round((2 * counted.macs + others) / 1e9, 2) == paper.rows[row][0]


def test_papers_tape():
    """Its 20.23 GMACs more than RoPE's, from what the released code computes."""
    T, dim, layers, hidden, heads = 1024, 768, 12, 48, 12
    (paper,) = (figures for figures in STUDY.figures if figures.source == "Table 3")
    rope, tape = paper.rows["rope"], paper.rows["tape"]
    products = layers * (2 * T * T * dim + 2 * T * dim * hidden)
    assert tape[1] - rope[1] == pytest.approx(products / 1e9, abs=0.01)
    einsums = layers * 2 * 2 * T * (2 * hidden * dim + heads * dim)
    assert tape[0] - rope[0] == pytest.approx((2 * products + einsums) / 1e9, abs=0.01)


def test_reads_back(tmp_path):
    """What a cell writes is what the report reads."""
    cell = TINY.cell("mini", "costs", "rope", 0)
    run_alone(cell, tmp_path)
    place = {"arm": "costs", "encoding": "rope", "seed": 0, "hash": cell.hash}
    declared = {"study": STUDY.name, "scale": "mini", "encodings": ["rope"], "seeds": 1}
    (tmp_path / "study.json").write_text(json.dumps({**declared, "cells": [place]}))
    found = report.load(tmp_path)
    assert found.strays == 0
    assert report.counted_ratio(found, "rope", "flops") == 1.0
    assert 0.01 < found.time("rope", "attention").median < 100
