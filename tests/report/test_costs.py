"""The tables, claims and page of a study of costs, from results typed by hand."""

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from milepost import studies
from milepost.errors import UsageError
from milepost.report import costs
from milepost.report.costs_results import Spread
from milepost.study.costs.study import PARTS, Claim

STUDY = studies.load("tape-table3")
MODEL = {"layers": 2, "heads": 3, "dim": 8}
TIMES = {"rope": 1.0, "tape": 1.2, "fire": 2.5, "t5": 1.1}
MACS = {"rope": 1000, "tape": 1120, "fire": 1033, "t5": 1000}


def result(row, *, spread=0.02, device="cpu", uncounted=()):
    ratios = [TIMES[row] * one for one in (1 - spread, 1.0, 1 + spread)]
    return {
        "settings": {
            "counted": {"model": MODEL, "length": 64},
            "sizes": {"model": MODEL, "batch": 1, "length": 32, "precision": "fp32"},
        },
        "counted": {
            "length": 64,
            "batch": 1,
            "parameters": 2**20,
            "macs": MACS[row] * 10**9,
            "elementwise": 5 * 10**9,
            "pair_macs": 1,
            "pair_elementwise": 30,
            "uncounted": list(uncounted),
            "seen_macs": 700 * 10**9,
            "seen_elementwise": 10**9,
        },
        "measured": {
            part: {
                "ratios": ratios,
                "seconds": 0.002,
                "base_seconds": 0.001,
                "tokens_per_second": 16000,
            }
            for part in PARTS
        },
        "kernels": "native",
        "seconds": 9.0,
        "versions": {"milepost": "0.1.0"},
        "machine": {"processor": "Some <Processor>", "threads": 2, "device": device},
    }


@pytest.fixture
def folder(tmp_path):
    """Make a folder of results by row; a text stands for a failure's reason, None for nothing."""

    def make(found=result, rows=tuple(TIMES), seeds=1):
        declared = []
        for place, row in enumerate(rows):
            for seed in range(seeds):
                name = f"{place:08x}{seed:08x}"
                declared.append({"arm": "costs", "encoding": row, "seed": seed, "hash": name})
                content = found(row)
                if content is None:
                    continue
                kind = "failed" if isinstance(content, str) else "cells"
                content = {"reason": content} if isinstance(content, str) else content
                (tmp_path / kind).mkdir(exist_ok=True)
                (tmp_path / kind / f"{name}.json").write_text(json.dumps(content))
        study = {
            "study": "tape-table3",
            "scale": "mini",
            "encodings": list(rows),
            "seeds": seeds,
            "cells": declared,
        }
        (tmp_path / "study.json").write_text(json.dumps(study))
        return tmp_path

    return make


def test_entries(folder):
    found = costs.load(folder())
    counted, timed, *papers = costs.grids(found)
    rows = {row[0]: row[1:] for row in counted.rows}
    # 30 for each pair, in 2 layers of 3 heads
    assert rows["tape"] == ("1.00", "1120.00", "1.120", "700.00", "5.00", "5.0")
    rows = {row[0]: row[1:] for row in timed.rows}
    assert rows["tape"] == (*["1.20 [1.19, 1.21]"] * 3, "16,000", "native")
    assert counted.title == "Counted: a forward pass of the paper's model over 64 tokens"
    assert [len(row) for grid in (counted, timed) for row in grid.rows] == [
        len(grid.heads) for grid in (counted, timed) for _ in grid.rows
    ]
    assert [row[0] for row in papers[0].rows] == ["tape", "rope", "fire", "t5"]
    assert papers[1].rows[2] == ("rope", "2.08", "4,810", "1.00")
    assert papers[0].rows[0] == ("tape", "365.65", "180.69", "155.33")


def test_seeds_are_taken_together(folder):
    found = costs.load(folder(seeds=2))
    assert len(found.of("tape")) == 2
    assert found.time("tape", "training") == Spread(1.2, *_quartiles(found))


def _quartiles(found):
    """Of .98, 1 and 1.02, twice: a quarter from the second to the third of six."""
    spread = found.time("tape", "training")
    assert (spread.low, spread.high) == pytest.approx((1.2 * 0.985, 1.2 * 1.015))
    return spread.low, spread.high


def test_what_is_missing_is_said(folder):
    def some(row):
        return {"t5": "deep\nError: <i>", "fire": None}.get(row, result(row))

    found = costs.load(folder(some))
    counted, timed, *_ = costs.grids(found)
    assert ("t5", *["failed"] * 6) in counted.rows
    assert ("fire", *["not run"] * 5) in timed.rows
    assert any("1 of 4 cells failed" in line for line in costs.notes(found))
    assert costs.judge(found, replace(CLAIM, rows=("t5",))).why == "not measured: t5"


CLAIM = Claim("c", "w", "attention", rows=("tape",), at_most=1.25)

VERDICTS = [
    ({}, "seen here"),
    ({"at_most": 1.2}, "not seen here"),
    ({"at_most": 1.1}, "contradicted here"),
    ({"at_most": None, "faster": ("fire",)}, "seen here"),
    ({"at_most": None, "faster": ("t5",)}, "contradicted here"),
    # one of two is no majority
    ({"at_most": None, "faster": ("fire", "t5")}, "not seen here"),
    ({"at_most": None, "at_least": 1.1}, "seen here"),
    ({"at_most": None, "at_least": 2.0}, "contradicted here"),
    ({"rows": ("fire",), "at_most": None, "at_least": 2.0}, "seen here"),
    ({"at_least": 1.1}, "seen here"),
    ({"at_least": 1.19}, "not seen here"),
    ({"at_least": 1.22}, "contradicted here"),
    ({"measure": "macs", "at_most": 1.12}, "seen here"),
    ({"measure": "macs", "at_most": 1.119}, "contradicted here"),
    ({"measure": "parameters", "at_most": 1.0}, "seen here"),
    ({"measure": "parameters", "at_most": None, "at_least": 1.0}, "seen here"),
    ({"measure": "parameters", "at_most": None, "faster": ("rope",)}, "not seen here"),
    ({"measure": "flops", "at_most": 1.1}, "contradicted here"),
    ({"measure": "none", "why_not": "too small"}, "not testable here"),
]


@pytest.mark.parametrize(("changes", "verdict"), VERDICTS)
def test_verdicts(folder, changes, verdict):
    judged = costs.judge(costs.load(folder()), replace(CLAIM, **changes))
    assert judged.verdict == verdict


def test_flops_are_two_for_each_mac(folder):
    found = costs.load(folder())
    assert costs.counted_ratio(found, "tape", "flops") == (2240 + 5) / (2000 + 5)
    judged = costs.judge(found, replace(CLAIM, measure="macs", at_most=1.2))
    assert judged.why == "tape 1.1200"


def test_ratios_of_counts_need_rope(folder):
    found = costs.load(folder(lambda row: None if row == "rope" else result(row)))
    assert costs.counted_ratio(found, "tape", "macs") is None
    assert costs.grids(found)[0].rows[1][3] == "–"
    assert costs.judge(found, replace(CLAIM, measure="macs")).verdict == "not testable here"
    assert set(costs.draw(found)) == {"time"}


def test_notes(folder):
    lines = costs.notes(costs.load(folder()))
    assert lines[0].startswith(
        "Timed at mini scale: 2 layers of 8, 3 heads, 1 × 32 tokens, fp32, on Some <Processor> "
        "with 2 threads; 3 to 3 rounds."
    )
    assert lines[-1] == (
        "Reproduce: milepost study tape-table3 --scale mini --encodings rope,tape,fire,t5"
    )
    assert not any("machines" in line for line in lines)


def test_notes_of_what_is_odd(folder):
    found = costs.load(
        folder(
            lambda row: result(
                row,
                device="A GPU" if row == "t5" else "cpu",
                uncounted=["aten.new.default"] if row == "t5" else (),
            )
        )
    )
    lines = costs.notes(found)
    assert any("Rows were timed on 2 machines" in line for line in lines)
    assert "Nothing was counted for aten.new.default, unknown to this release." in lines


def test_another_study_is_refused(folder, tmp_path):
    folder()
    path = tmp_path / "study.json"
    path.write_text(path.read_text().replace("tape-table3", "cope-table2"))
    with pytest.raises(UsageError, match=r"cope-table2, .* no CostStudy: .*report\.tables\.load"):
        costs.load(tmp_path)


def test_everything_is_shown(folder):
    pytest.importorskip("matplotlib")
    found = costs.load(folder())
    console = Console(width=100, record=True, file=io.StringIO())
    for renderable in costs.terminal(found, console):
        console.print(renderable)
    text = console.export_text()
    assert "1.20 [1.19, 1.21]" in text
    markdown = costs.markdown(found)
    assert "| tape | 1.00 | 1120.00 | 1.120 | 700.00 | 5.00 | 5.0 |" in markdown
    drawn = costs.draw(found)
    assert set(drawn) == {"time", "count"}
    assert all(svg.startswith("<svg") for svg in drawn.values())
    assert costs.draw(found) == drawn
    page = costs.page(found, drawn)
    assert "Some &lt;Processor&gt;" in page
    assert "<Processor>" not in page
    assert not re.findall(r"(?:src|href)=\"(?!#|https://arxiv)", page)


def test_nothing_yet(folder):
    found = costs.load(folder(lambda row: None))
    assert costs.grids(found) == []
    assert costs.draw(found) == {}
    assert "No cell has finished yet." in costs.page(found, {})
    assert "Reproduce" in costs.markdown(found)
