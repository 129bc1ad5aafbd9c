import io
import re

from rich.console import Console

from milepost.report import table
from milepost.report.results import load

FLIP_FLOP = {
    ("flip-flop", "absolute", "in"): [10, 20, 30],  # 20.0 ± 10.0
    ("flip-flop", "absolute", "sparse"): [40, 40, 40],
    ("flip-flop", "rope", "in"): [1, 2, None],  # 1.5 ± 0.7
    ("flip-flop", "rope", "sparse"): [2, 4, None],  # 3.0 ± 1.4
    ("flip-flop", "cope", "in"): [0, 0.06],  # 0.03 ± 0.04, two seeds
    ("flip-flop", "cope", "sparse"): [30, 31],
}


def printed(found, width=100):
    text = io.StringIO()
    console = Console(file=text, width=width)
    for renderable in table.terminal(found, console):
        console.print(renderable)
    return text.getvalue()


def row(text, name):
    """A row of the first table, its columns apart by two blanks."""
    line = next(line for line in text.splitlines() if line.split() and line.split()[0] == name)
    return re.split(r" {2,}", line.strip())


def test_entries_by_hand_with_the_papers_beside(folder):
    text = printed(load(folder(FLIP_FLOP)))
    assert row(text, "absolute")[1:5] == ["20.0 ± 10.0", "6.8 (6.9)", "40.0 ± 0.0", "21.7 (7.9)"]
    assert row(text, "rope")[1:5] == ["1.5 ± 0.7", "1.8 (3.1)", "‡3.0 ± 1.4", "20.3 (2.9)"]
    assert row(text, "cope")[1:5] == ["0.03 ± 0.04", "0.03 (0.06)", "‡30.5 ± 0.7", "4.9 (4.4)"]
    assert "failed" in text
    assert "(1 of 3)" in text
    assert "(2 of 3 seeds)" in text
    assert "not run" in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_narrow_terminal_has_the_papers_figure_below(folder):
    lines = printed(load(folder(FLIP_FLOP)), width=80).splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip().startswith("absolute"))
    assert re.split(r" {2,}", lines[at].strip())[:3] == ["absolute", "20.0 ± 10.0", "40.0 ± 0.0"]
    assert re.split(r" {2,}", lines[at + 1].strip())[:3] == ["paper", "6.8 (6.9)", "21.7 (7.9)"]
    assert not any("…" in line for line in lines)


def test_notes_say_what_was_run_and_what_contradicts_the_paper(folder):
    notes = table.notes(load(folder(FLIP_FLOP)))
    assert "mean ± sample standard deviation over 3 seeds, mini scale" in notes[0]
    assert "compare the order of the rows" in notes[1]
    assert notes[2] == (
        "Flip-flop: 600 steps of 32 sequences of up to 128 tokens; 2 layers, 4 heads, "
        "dimension 64; 8 sequences to test on."
    )
    (contradiction,) = [note for note in notes if note.startswith("‡")]
    assert contradiction == (
        "‡ Contradicts the paper. Flip-flop, OOD sparse: cope is below rope in the paper "
        "(4.9 and 20.3) and above it here (30.5 ± 0.7 and 3.0 ± 1.4)."
    )
    # judged: cope below absolute (30.5 and 40.0) and cope below rope
    assert any(note.startswith("Of 2 differences") and "1 is found here" in note for note in notes)
    assert any(note.startswith("1 of 18 cells failed") for note in notes)
    assert notes[-1] == (
        "Reproduce: milepost study cope-table2 --scale mini --encodings absolute,rope,cope"
    )


def test_rows_that_the_paper_lacks_show_a_dash(folder):
    found = load(
        folder({("flip-flop", "alibi", "in"): [1]}, encodings=("absolute", "alibi"), seeds=1)
    )
    assert row(printed(found), "alibi")[1:3] == ["1.0", "–"]
    assert table.notes(found)[-1].endswith("--scale mini --encodings absolute,alibi --seeds 1")


def test_papers_scale_marks_figures_that_differ(folder):
    errors = {
        ("flip-flop", "rope", "in"): [1.0, 2.0, 2.5],
        ("flip-flop", "cope", "in"): [9.0, 9.1, 9.2],
    }
    found = load(folder(errors, scale="paper"))
    text = printed(found)
    assert row(text, "rope")[1] == "1.8 ± 0.8"
    assert row(text, "cope")[1] == "*9.1 ± 0.1"
    assert any(note.startswith("* differs from the paper's figure") for note in table.notes(found))


def test_markdown_has_the_same_entries(folder):
    lines = table.markdown(load(folder(FLIP_FLOP))).splitlines()
    assert lines[2] == (
        "| encoding | in-dist | paper | OOD sparse | paper | dense | length ×2 | ×2 sparse |"
    )
    assert lines[5] == (
        "| rope | 1.5 ± 0.7 failed (1 of 3) | 1.8 (3.1) "
        "| ‡3.0 ± 1.4 failed (1 of 3) | 20.3 (2.9) | failed (1 of 3) | failed (1 of 3) "
        "| failed (1 of 3) |"
    )
    assert all(line.count("|") == 9 for line in lines[2:7])


def test_what_a_finished_run_has_no_number_of_is_a_dash(folder):
    found = load(folder({("flip-flop", "cope", "in"): [1, 2, 3]}))
    assert row(printed(found), "cope")[3] == "–"  # sparse, of runs that are there
    assert row(printed(found), "rope")[3] == "not run"


def test_many_differences_of_the_paper_alone_are_counted(folder, monkeypatch):
    alike = {("flip-flop", row, "sparse"): [10, 11, 12] for row in ("absolute", "rope", "cope")}
    found = load(folder(alike))
    named = "Not found. Flip-flop, OOD sparse: cope below absolute; cope below rope."
    assert named in table.notes(found)
    monkeypatch.setattr(table, "_NAMED", 1)
    assert "Not found. Flip-flop, OOD sparse: 2 differences." in table.notes(found)


def test_many_contradictions_are_counted_and_marked(folder, monkeypatch):
    worst = {"absolute": 10, "rope": 11, "cope": 30}
    found = load(
        folder({("flip-flop", name, "sparse"): [v, v + 1, v + 2] for name, v in worst.items()})
    )
    contradictions = [note for note in table.notes(found) if note.startswith("‡")]
    assert len(contradictions) == 2
    monkeypatch.setattr(table, "_NAMED", 1)
    (counted,) = [note for note in table.notes(found) if note.startswith("‡")]
    assert counted == (
        "‡ Contradicts the paper. Flip-flop, OOD sparse: 2 differences, of the rows that are "
        "marked."
    )
    assert "‡31.0" in printed(found)
