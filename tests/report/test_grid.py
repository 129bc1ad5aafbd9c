import io
from html.parser import HTMLParser

import pytest
from rich.console import Console

from milepost.report import grid
from milepost.report.grid import Grid

GRID = Grid(
    "A <title>",
    ("row", "what", "number"),
    (("a*b", "words", "1.2 (0.3)"), ("c", "<i>more</i>", "2.5 [2.4, 2.6]")),
    left=2,
)


class Cells(HTMLParser):
    """The words of a table, each with the element that it stands in."""

    def __init__(self, text):
        super().__init__()
        self.inside, self.found = [], []
        self.feed(text)
        assert self.inside == []

    def handle_starttag(self, tag, attributes):
        self.inside.append(tag)

    def handle_endtag(self, tag):
        assert self.inside.pop() == tag

    def handle_data(self, data):
        self.found.append((self.inside[-1], data))


def test_the_terminal_has_brackets_below_their_number():
    text = io.StringIO()
    for renderable in grid.terminal([GRID], ["a note"]):
        Console(file=text, width=80).print(renderable)
    lines = [line.split() for line in text.getvalue().splitlines() if line.strip()]
    assert lines[0] == ["A", "<title>"]
    assert lines[1] == ["what", "number"]
    assert lines[3:6] == [
        ["a*b", "words", "1.2"],
        ["(0.3)"],
        ["c", "<i>more</i>", "2.5", "[2.4,", "2.6]"],
    ]
    assert lines[-1] == ["a", "note"]


def test_markdown_escapes_entries_and_aligns_words_left():
    assert grid.markdown(GRID).splitlines() == [
        "| row | what | number |",
        "| :-- | :-- | --: |",
        r"| a\*b | words | 1.2 (0.3) |",
        r"| c | \<i\>more\</i\> | 2.5 [2.4, 2.6] |",
    ]
    assert grid.titled("a_b", "text") == "**a\\_b**\n\ntext"
    assert grid.bullets(["one", "t|wo"]) == "- one\n- t\\|wo"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("`p_max` of a_b", r"`p_max` of a\_b"),
        ("`a|b` or c|d", r"`a\|b` or c\|d"),  # a bar ends a cell in code, too
        ("one ` of a_b", r"one \` of a\_b"),
    ],
)
def test_code_between_backticks_stays_code(text, shown):
    assert grid.escape(text) == shown


def test_a_page_escapes_entries_and_has_brackets_apart():
    found = Cells(grid.on_page(GRID)).found
    assert found[0] == ("h2", "A <title>")
    assert found[1:4] == [("th", "row"), ("th", "what"), ("th", "number")]
    assert found[4:8] == [("th", "a*b"), ("td", "words"), ("td", "1.2"), ("span", "(0.3)")]
    assert found[8:] == [("th", "c"), ("td", "<i>more</i>"), ("td", "2.5"), ("span", "[2.4, 2.6]")]


def test_details_have_entries_as_they_are_and_nothing_of_nothing():
    assert Cells(grid.raw([("a", 1, "x (y)")])).found == [("th", "a"), ("td", "1"), ("td", "x (y)")]
    assert "<thead>" not in grid.raw([("a", 1)])
    assert "<thead>" in grid.raw([("a", 1)], ("row", "n"))
    assert grid.raw([]) == ""
