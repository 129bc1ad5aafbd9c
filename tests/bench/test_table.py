import io
import logging
from xml.etree import ElementTree

import pytest

from milepost.bench import plot, table
from milepost.bench.cpu import run
from milepost.bench.results import BOTH, DIRECTIONS, FORWARD, timed


@pytest.fixture
def record(planned, tmp_path):
    """A small run whose times are replaced by known ones."""
    plan = planned(ops=["softmax", "cope"], caches="32", head_dims="8,16")
    found = run(plan, tmp_path / "result.json")
    for case in found["cases"]:
        for direction, measured in case["directions"].items():
            factor = {FORWARD: 2.0, BOTH: 3.0}[direction] * (2 if case["keys"] == 24 else 1)
            seconds = {"milepost": 0.001 * factor, "sdpa": 0.001, "plain": 0.0005}
            measured |= timed({name: [seconds.get(name, 0.5)] * 2 for name in ("sdpa", *measured)})
    found["memory"] = [
        {
            "label": "cope",
            "op": "cope",
            "gates": "typical",
            "head_dim": 8,
            "keys": keys,
            "threads": 1,
            "contender": "milepost",
            "bytes": keys * 2**20,
            "results": 0,
            "how": "VmHWM",
        }
        for keys in (16, 24)
    ]
    return found


def rows(text, title):
    """The cells of the Markdown table under a title, heads first."""
    after = text.split(f"**{title}**\n\n")[1].split("\n\n")[0]
    lines = [line.strip("| ").split(" | ") for line in after.splitlines()]
    return [lines[0], *lines[2:]]


def test_the_summary_is_the_median_over_the_cells(record):
    text = table.markdown(record)
    heads, *found = rows(text, table.summary(record).title)
    cope = next(
        dict(zip(heads, row, strict=True)) for row in found if row[:2] == ["cope", "typical"]
    )
    assert cope["fwd / SDPA"] == "3.00 (2.00 to 4.00)"
    assert cope["fwd+bwd / SDPA"] == "4.50 (3.00 to 6.00)"
    assert cope["fwd / plain"] == "6.00 (4.00 to 8.00)"
    assert (cope["threads"], cope["cells"]) == ("1", "4")
    softmax, *_ = (row for row in found if row[0] == "softmax")
    assert softmax[1] == table.NOTHING
    decoding = next(row for row in found if row[0].startswith("cope (decoding)"))
    assert decoding[3] == "2.00 (2.00 to 2.00)"
    assert decoding[4] == table.NOTHING


def test_a_cell_has_a_row(record):
    heads, *found = rows(table.markdown(record), "cope, typical gates, 1 thread")
    assert [row[:2] for row in found] == [["8", "16"], ["8", "24"], ["16", "16"], ["16", "24"]]
    first = dict(zip(heads, found[0], strict=True))
    assert (first["fwd, ms"], first["fwd / SDPA"], first["fwd / plain"]) == ("2.00", "2.00", "4.00")
    assert first["listing fwd / SDPA"] == "500"
    assert first["memory, MiB"] == "16.0"
    assert first["SDPA's, MiB"] == table.NOTHING


def test_only_the_summary(record):
    text = table.markdown(record, only_summary=True)
    assert text.count("**") == 2
    assert text in table.markdown(record) or text.split("\n- ")[0] in table.markdown(record)


def test_the_notes_say_where_and_what_is_missing(record):
    record["finished"] = False
    record["source"] = {"commit": "0123456789abcdef", "dirty": True}
    text = "\n".join(table.notes(record))
    assert record["machine"]["processor"] in text
    assert "at 0123456789 with changes" in text
    assert "The run was stopped" in text
    record["machine"]["load"] = 1.25
    assert any("1.2 processes at work" in line for line in table.notes(record))
    record["machine"]["load"] = 0.1
    assert not any("busy" in line for line in table.notes(record))
    record["cases"][0]["failure"] = "MemoryError: none left"
    assert any("none left" in line for line in table.notes(record))


def test_the_terminal_shows_the_same_words(record):
    from rich.console import Console

    console = Console(width=240, record=True, file=io.StringIO())
    for renderable in table.terminal(record):
        console.print(renderable)
    shown = console.export_text()
    for sheet in table.sheets(record):
        assert sheet.title in shown
        assert all(row[-1] in shown for row in sheet.rows)


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "–"), (0.874, "0.87"), (12.34, "12.3"), (140.2, "140")]
)
def test_three_digits(value, shown):
    assert table.times(value) == shown


def test_a_panel_for_each_op_and_direction(record, caplog):
    pytest.importorskip("matplotlib")
    with caplog.at_level(logging.WARNING, logger="matplotlib"):
        drawn = plot.draw(record)
    assert not caplog.records
    assert set(drawn) == {"1-thread", "decode-1-thread"}
    words = [
        "".join(node.itertext())
        for node in ElementTree.fromstring(drawn["1-thread"]).iter()
        if node.tag.endswith("}text")
    ]
    assert {"softmax, forward", "cope, forward + backward"} <= set(words)
    assert {"D=8", "D=16, never saturating gates"} <= set(words)
    assert len(DIRECTIONS) * 2 == sum(word == "time over SDPA's" for word in words)
    assert drawn == plot.draw(record)
