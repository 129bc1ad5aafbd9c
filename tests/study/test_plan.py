import json
import os
from dataclasses import replace

import pytest

from milepost import studies
from milepost.study import work
from milepost.study.cell import Cell
from milepost.study.executors.local import Local
from milepost.study.extension.cell import ExtensionCell
from milepost.study.extension.study import BASE
from milepost.study.plan import grid_of, last_line, plan
from milepost.study.run import run

STUDY = studies.load("cope-table2")


@pytest.fixture
def grid(tiny):
    return grid_of(STUDY, "mini", ["rope", "cope"], 1)


def put(cell, folder, **changes):
    """A result of the cell, as other folders have them."""
    path = work.result_file(cell, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**dict.fromkeys(cell.result_names, 1), **changes}))
    return path


def test_results_of_folders_beside_are_taken(grid, tmp_path):
    beside = tmp_path.parent
    first, second, third, fourth = grid
    whole = put(first, beside / "another", seconds=12.5)
    put(first, beside / "yet-another")
    put(second, beside / "another").write_text("{")
    put(third, tmp_path)
    put(third, beside / "another")
    put(fourth, beside / "another" / "deeper")
    found = plan(grid, tmp_path)
    assert dict(found.elsewhere) == {first.hash: whole}
    assert {cell.hash for cell in found.todo} == {second.hash, fourth.hash}
    assert not work.result_file(first, tmp_path).exists()
    assert found.take(tmp_path) == [f"1 result taken from {beside / 'another'}"]
    assert work.result_file(first, tmp_path).read_bytes() == whole.read_bytes()
    again = plan(grid, tmp_path)
    assert (again.elsewhere, len(again.todo)) == ({}, 2)


def test_a_taken_result_ends_a_failure_and_a_damaged_one(grid, tmp_path):
    failed, damaged, *_ = grid
    work.write_failure(failed, tmp_path, "no memory")
    put(damaged, tmp_path).write_text("[]")
    for cell in (failed, damaged):
        put(cell, tmp_path.parent / "another")
    found = plan(grid, tmp_path)
    assert set(found.elsewhere) == {failed.hash, damaged.hash}
    assert (found.failed, found.damaged) == ([], [])
    assert found.take(tmp_path) == [f"2 results taken from {tmp_path.parent / 'another'}"]
    assert not work.failure_file(failed, tmp_path).exists()
    assert work.damage(damaged, tmp_path) is None


def test_a_run_takes_them_and_says_so(tiny, tmp_path):
    study = replace(STUDY, arms=STUDY.arms[:1])
    rope = {"scale": "mini", "encodings": ["rope"], "executor": Local(jobs=1)}
    (cell,) = grid_of(study, "mini", ["rope"], 1)
    put(cell, tmp_path.parent / "another")
    news = []
    progress = run(study, tmp_path, seeds=1, watch=lambda _, line: news.append(line), **rope)
    assert (progress.finished, progress.skipped, progress.done) == (0, 1, 1)
    assert news == [f"1 result taken from {tmp_path.parent / 'another'}"]


def test_a_row_is_not_taken_from_its_base(tmp_path):
    grid = grid_of(studies.load("tape-table2"), "mini", ["lora"], 1)
    for cell in grid:
        put(cell, tmp_path.parent / "another")
    base, lora = grid
    assert isinstance(base, ExtensionCell)
    assert (base.encoding, lora.needs) == (BASE, base)
    found = plan(grid, tmp_path)
    assert (list(found.todo), found.elsewhere) == ([base, lora], {})
    # not even where the base is
    base.base_folder(tmp_path).mkdir(parents=True)
    assert list(plan(grid, tmp_path).elsewhere) == [base.hash]


def test_costs_are_not_taken_from_another_day(tmp_path):
    grid = grid_of(studies.load("tape-table3"), "mini", ["rope"], 1)
    put(grid[0], tmp_path.parent / "another")
    assert plan(grid, tmp_path).elsewhere == {}


def test_what_failed_waits_until_it_is_asked_for(grid, tmp_path):
    failed, unreadable, *rest = grid
    work.write_failure(failed, tmp_path, "here.py:3 in run\nMemoryError: 4 GB\n")
    work.write_failure(unreadable, tmp_path, "")
    work.failure_file(unreadable, tmp_path).write_text("{")
    found = plan(grid, tmp_path)
    assert found.failed == [(failed, "MemoryError: 4 GB")]
    assert {cell.hash for cell in found.todo} == {cell.hash for cell in (unreadable, *rest)}
    assert len(plan(grid, tmp_path, retry=True).todo) == 4
    put(failed, tmp_path)  # a result counts more
    assert plan(grid, tmp_path).failed == []


def test_rows_of_a_failed_base_do_not_run_it(tmp_path):
    grid = grid_of(studies.load("tape-table2"), "mini", ["lora"], 1)
    base, lora = grid
    work.write_failure(base, tmp_path, "no text")
    found = plan(grid, tmp_path)
    assert (found.failed, list(found.todo)) == ([(base, "no text")], [lora])
    news = []
    progress = run(
        studies.load("tape-table2"),
        tmp_path,
        scale="mini",
        encodings=["lora"],
        seeds=1,
        watch=lambda _, line: line and news.append(line),
    )
    assert progress.failed == [base, lora]
    assert news == [
        "base, seed 0: failed before, and waits for --retry: no text",
        "lora, seed 0: failed, it needs base, seed 0, which failed",
    ]


def test_one_run_in_two_places_of_a_grid_is_done_once(grid, tmp_path):
    cell = grid[0]
    assert isinstance(cell, Cell)
    twin = replace(cell, arm="another")
    assert [one.hash for one in plan([cell, twin], tmp_path).todo] == [cell.hash]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_folders_that_cannot_be_listed_hold_nothing(grid, tmp_path):
    put(grid[0], tmp_path.parent / "another")
    tmp_path.parent.chmod(0o300)
    try:
        assert plan(grid, tmp_path).elsewhere == {}
    finally:
        tmp_path.parent.chmod(0o700)


def test_the_last_line_is_what_a_reason_comes_down_to():
    assert [last_line("a\nb\n\n"), last_line("")] == ["b", "no reason given"]
