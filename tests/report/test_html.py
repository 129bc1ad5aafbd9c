import json
import re
from html.parser import HTMLParser

import pytest

from milepost.commands import report as command
from milepost.errors import UsageError
from milepost.report import html, plots
from milepost.report.results import load

HOSTILE = "</pre><script>alert('x')</script>"
VOID = {"meta", "br", "img", "link", "hr", "input"}
ERRORS = {
    ("flip-flop", "rope", "in"): [1, 2, 3],
    ("flip-flop", "cope", "in"): [0, 0, None],
    ("flip-flop", "rope", "sparse"): [0, 0, 0],
    ("flip-flop", "cope", "sparse"): [9, 9, None],
}


class Page(HTMLParser):
    """Collects tags and text, and insists that every element is closed in turn."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture
def written(folder):
    found = load(folder(ERRORS, settings={"task": HOSTILE}))
    return html.page(found, plots.draw(found))


def test_the_page_holds_tables_plots_and_details(written):
    page = Page(written)
    tags = [tag for tag, _ in page.tags]
    assert tags.count("svg") == 2  # test sets and learning; nothing longer was measured
    assert tags.count("table") == 3  # two of the study, one of every seed
    assert ("title", {}) in page.tags
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in (
        page.tags
    )
    for expected in (
        "2.0 ± 1.0",
        "paper 1.8 (3.1)",
        "failed (1 of 3)",
        "‡ Contradicts the paper",
        "MemoryError: <i>no room</i>",
        "torch 2.11.0",
        "Table 2 left, OOD; spread from Table 7",
    ):
        assert expected in page.text


def test_nothing_is_fetched_from_elsewhere(written):
    without_namespaces = re.sub(r'xmlns(:\w+)?="[^"]*"', "", written)
    addresses = re.findall(r"https?://[^\"'<\s]*", without_namespaces)
    assert addresses == ["https://arxiv.org/abs/2405.18719"]
    for tag, attributes in Page(written).tags:
        assert tag not in {"script", "link", "img", "iframe", "object", "base"}
        assert "src" not in attributes
        if tag != "a":
            for name in ("href", "xlink:href"):
                assert attributes.get(name, "#").startswith("#")
    assert "@import" not in written
    assert not re.search(r"url\((?!#)", written)
    assert "default-src 'none'" in written


def test_names_from_results_are_escaped(written):
    assert HOSTILE not in written
    assert "<i>no room" not in written
    assert f'"task": {json.dumps(HOSTILE)}' in Page(written).text


def test_the_page_follows_light_and_dark(written):
    assert "prefers-color-scheme: dark" in written
    dark = written.split("prefers-color-scheme: dark", 1)[1]
    for name in ("--page", "--ink", "--quiet", "--rule", "--series-1", "--series-8"):
        assert name in dark


def test_a_page_of_no_results_says_so(folder):
    found = load(folder({}))
    assert "No cell has finished yet." in Page(html.page(found, {})).text


def test_with_one_seed_the_claims_share_a_line_everywhere(folder, capsys):
    directory = folder({("flip-flop", "rope", "in"): [1]}, seeds=1)
    assert command.run(command.Arguments(directory)) == 0
    line = "Not testable here: 5 claims need two seeds of each row: On flip-flop CoPE"
    printed = " ".join(capsys.readouterr().out.split())
    for text in (printed, (directory / "table.md").read_text()):
        assert text.count("Not testable here") == text.count(line) == 1
    page = (directory / "report.html").read_text()
    assert page.count(f'<li class="not">{line}') == page.count("two seeds of each") == 1


def test_report_writes_the_files_and_prints_the_table(folder, capsys):
    directory = folder(ERRORS)
    assert command.run(command.Arguments(directory)) == 0
    out = capsys.readouterr().out
    assert "2.0 ± 1.0" in out
    assert out.splitlines()[-1] == f"report: {directory / 'report.html'}"
    assert Page((directory / "report.html").read_text())
    assert "| rope |" in (directory / "table.md").read_text()
    assert {path.name for path in (directory / "plots").iterdir()} == {
        "learning-flip-flop.svg",
        "test-sets-flip-flop.svg",
    }


def test_without_matplotlib_the_table_shows_all_the_same(folder, capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    directory = folder(ERRORS)
    with pytest.raises(UsageError, match="matplotlib"):
        command.run(command.Arguments(directory))
    assert "2.0 ± 1.0" in capsys.readouterr().out
    assert (directory / "table.md").exists()
    assert not (directory / "report.html").exists()
