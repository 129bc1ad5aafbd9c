"""All studies on one page, from results typed by hand."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from milepost import studies
from milepost.commands import report as command
from milepost.errors import UsageError
from milepost.report import summary
from milepost.report.verdicts import Judged
from milepost.study.study import Claim

ERRORS = {
    ("flip-flop", "rope", "in"): [1, 2, 3],
    ("flip-flop", "cope", "in"): [0, 0, 0],
    ("flip-flop", "cope", "length x2"): [4, 5, 6],
}


VERDICTS = tuple(f"{verdict.capitalize()}: " for verdict in summary.VERDICTS)


@pytest.fixture
def page(folder, tmp_path):
    """The page of one study's folder, written by the command."""
    folder(ERRORS).joinpath("cells", "feedfeedfeedfeed.json").write_text("{}")
    results, study = tmp_path / "results", tmp_path / "results" / "cope-table2-mini"
    study.mkdir(parents=True)
    for name in ("cells", "study.json"):
        (tmp_path / name).rename(study / name)
    (results / "no-study").mkdir()
    written = tmp_path / "docs" / "results.md"
    assert command.run(command.Arguments(results, summary=written)) == 0
    return written


def test_every_claim_has_its_verdict_and_every_study_its_place(page):
    lines = page.read_text().splitlines()
    claims = studies.load("cope-table2").claims
    counts = next(line for line in lines if line.startswith("Of "))
    assert counts.startswith(f"Of {len(claims)} claims of the papers: ")
    assert sum(int(part.split()[0]) for part in counts.split(": ")[1].split(", ")) == len(claims)
    (row,) = (line for line in lines if "](#cope-table2-flip-flop-and-selective-copy)" in line)
    assert sum(int(entry.strip() or 0) for entry in row.split("|")[2:-1]) == len(claims)
    told = "\n".join(line for line in lines if line[2:].startswith(VERDICTS))
    assert all(claim.text in told for claim in claims)
    absent = {line.split("`")[1] for line in lines if line.startswith("- `")}
    assert absent == {*studies.names()} - {"cope-table2"}


def test_questions_are_counted_apart():
    claim = Claim("it is so", "Table 1")
    found = [Judged(claim, "seen here", ""), Judged(replace(claim, question=True), "seen here", "")]
    entry = SimpleNamespace(found=None, kind=SimpleNamespace(judged=lambda _: found))
    none = "1 seen here, 0 not seen here, 0 contradicted here, 0 not testable here."
    told = summary.counts([entry]).split("\n\n")
    assert told == [
        f"Of 1 claim of the papers: {none}",
        f"Of 1 question of their readers: {none}\n",
    ]


def test_results_of_other_settings_are_not_counted(page):
    assert "6 runs, 6 minutes in all, on Some Processor; commit not recorded." in page.read_text()


def test_the_same_results_give_the_same_files_and_old_pictures_go(page, tmp_path):
    images = page.parent / "images" / page.stem
    before = page.read_bytes()
    old = images / "cope-table2-mini-old.svg"
    old.parent.mkdir(parents=True, exist_ok=True)
    old.write_text("<svg/>")
    summary.write(tmp_path / "results", page)
    assert page.read_bytes() == before
    assert not old.exists()
    linked = [line.split("](")[1][:-1] for line in before.decode().splitlines() if line[:2] == "!["]
    assert linked == ["images/results/cope-table2-mini-length-flip-flop.svg"]
    assert [path.name for path in images.iterdir()] == [Path(linked[0]).name]


def test_a_study_that_has_not_begun_says_so(folder, tmp_path):
    (tmp_path / "results" / "one").mkdir(parents=True)
    (folder({}) / "study.json").rename(tmp_path / "results" / "one" / "study.json")
    (entry,) = summary.read(tmp_path / "results")
    assert summary.ran(entry) == "Nothing has finished yet."


def test_a_folder_without_studies_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"holds no studies: expected folders in it with a study"):
        summary.write(tmp_path, tmp_path / "results.md")
