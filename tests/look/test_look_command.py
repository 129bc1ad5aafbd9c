"""`milepost look`: runs and texts as a page, heads as figures, and a word on every mistake."""

import re
import signal
import sys
import webbrowser
from pathlib import Path
from typing import Any

import pytest
import torch

from milepost import cli
from milepost.commands.look import HEADS_SHOWN
from milepost.evaluate import load_run
from milepost.look import Counted, Subject, counted, demo, encode, of_task, sample
from milepost.report import live
from milepost.training import checkpoint, rundir
from milepost.training.loop import train
from milepost.training.session import Progress
from milepost.training.settings import Settings

from .unpacked import Parsed

CORPUS = Path(__file__).parents[1] / "tasks/corpus"
ANSWERS = ["w", "0", "i", "1", "r"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def settings(steps: int = 1, **changes: Any) -> Settings:
    values = {
        "task": "flip-flop",
        "task_settings": {"length": 16},
        "encoding": "cope",
        "model": {"dim": 16, "layers": 2, "heads": 2, "max_length": 64},
        "steps": steps,
        "batch": 2,
        "lr": 0.3,  # so that one step moves all weights
    }
    return Settings(**{**values, **changes})


def write_run(name: str = "run", **changes: Any) -> Path:
    train(settings(**changes), Path(name))
    return Path(name)


@pytest.fixture
def run(here: Path) -> Path:
    return write_run()


TEXT = {"task": "text", "task_settings": {"corpus": str(CORPUS), "length": 16}}


def looked(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    """What is printed."""
    assert cli.main(["look", *map(str, arguments), "--device", "cpu"]) == 0
    return capsys.readouterr()


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert cli.main(["look", *map(str, arguments), "--device", "cpu"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = [line for line in printed.err.splitlines() if "--tokens N" not in line]
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return printed.err


def pages(path: str = "look.html") -> list[dict[str, Any]]:
    return Parsed(Path(path).read_text(encoding="utf-8")).subjects


def texts(path: str = "look.html") -> list[str]:
    (about,) = pages(path)
    return about["texts"]


def subject(run: Path, text: str | None = None, length: int | None = None) -> Subject:
    model, _, task = load_run(run, "cpu")
    return of_task("", model, task, sample(task, length) if text is None else encode(task, text))


def best(layers: tuple[Counted, ...]) -> list[tuple[int, int]]:
    selective = torch.stack([layer.selectivity for layer in layers])
    order = selective.flatten().argsort(descending=True).tolist()
    return [divmod(place, selective.shape[1]) for place in order]


def test_a_run_shows_a_test_sequence_of_its_task(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = looked(capsys, run)
    (about,) = pages()
    expected = subject(run)
    assert about["title"] == "cope, flip-flop (run)"
    assert about["texts"] == list(expected.texts)
    assert about["classes"] == ["w", "i", "r", "bit"]
    for layer, found in zip(about["layers"], counted(expected), strict=True):
        assert layer["counted"]["amount"] == pytest.approx(found.amount.tolist(), rel=1e-5)
    size = Path("look.html").stat().st_size / 1e3
    assert f"look.html: a page of {size:.0f} kB, to be opened in a browser\n" in printed.out
    assert printed.err == ""


def test_which_sequence_can_be_chosen(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, task = load_run(run)
    looked(capsys, run, "--length", 8, "--sequence", 3)
    assert texts() == [task.vocab[token] for token in sample(task, 8, 3)]
    looked(capsys, run, "--task", "flip-flop")
    assert texts() == [task.vocab[token] for token in sample(task)]


@pytest.mark.parametrize("source", ["text", "file"])
def test_the_words_of_a_task_can_be_given(
    source: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("words.txt").write_text("w 0\ni 1 r\n")
    looked(capsys, run, f"--{source}", {"text": "w 0 i  1 r", "file": "words.txt"}[source])
    assert texts() == ANSWERS


def test_text_is_shown_by_its_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(encoding="fox", **TEXT)
    looked(capsys, run, "--text", "né <b>")
    assert texts() == ["n", r"\xc3", r"\xa9", " ", "<", "b", ">"]
    looked(capsys, run, "--length", 30, "--sequence", 1)
    assert "".join(texts()) == (CORPUS / "test.txt").read_text()[30:60]


def test_the_first_tokens_are_shown_of_a_long_text(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = looked(capsys, run, "--text", "w 0 i 1 r", "--tokens", 3)
    assert texts() == ANSWERS[:3]
    assert printed.err.startswith("the first 3 of 5 tokens are shown; --tokens N shows more")
    printed = looked(capsys, run, "--text", "w 0 i 1 r", "--tokens", 5)
    assert texts() == ANSWERS
    assert printed.err == ""
    looked(capsys, run, "--tokens", 2)
    assert len(texts()) == 2


def test_of_several_runs_one_is_chosen_on_the_page(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [run, write_run("other", encoding="stick-breaking"), write_run("third", encoding="rope")]
    printed = looked(capsys, *runs, "--text", "w 0 i 1 r", "--out", "deep/er/page.html")
    titles = [
        f"{name}, flip-flop ({path})"
        for name, path in zip(("cope", "stick-breaking", "rope"), runs, strict=True)
    ]
    assert [about["title"] for about in pages("deep/er/page.html")] == titles
    assert [line.strip() for line in printed.out.splitlines() if "flip-flop" in line] == titles
    for meaning in ("counted, on average", "spent of the stick", "attention to other tokens"):
        assert printed.out.count(meaning) == 1


def rows(out: str) -> dict[str, list[str]]:
    """The cells of the printed table, by what its lines begin with."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    return {line[0]: line[1:] for line in lines if len(line) > 1}


def test_the_table_has_the_most_selective_heads_first(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = rows(looked(capsys, run).out)
    layers = counted(subject(run))
    assert found["layer.head"] == ["counted, on average", "on w", "on i", "on r", "on bit"]
    heads = best(layers)
    assert [*found][1:] == [*(f"{layer}.{head}" for layer, head in heads), "all, if even"]
    for layer, head in heads:
        shares = [layers[layer].amount[head], *layers[layer].share()[head]]
        assert found[f"{layer}.{head}"] == [f"{100 * share:.0f} %" for share in shares]
    even = layers[0].pairs.sum(0) / layers[0].pairs.sum()
    assert found["all, if even"] == [f"{100 * share:.0f} %" for share in even]


def test_a_table_of_many_heads_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(model={"dim": 16, "layers": 4, "heads": 4, "max_length": 64})
    out = looked(capsys, run).out
    assert len([name for name in rows(out) if re.fullmatch(r"\d\.\d", name)]) == HEADS_SHOWN
    assert "12 of 16 heads; all are on the page" in out


@pytest.mark.parametrize(("encoding", "even"), [("tape", "100 %"), ("stick-breaking", "–")])
def test_a_share_of_nothing_is_a_dash(
    encoding: str, even: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(encoding=encoding)
    found = rows(looked(capsys, run, "--text", "w").out)
    assert found["0.0"] == ["0 %", "–"]  # places have not moved, and the stick is whole
    assert found["all, if even"] == [even]


def test_a_page_takes_the_place_of_a_page_alone(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    looked(capsys, run, "--text", "w 0")
    looked(capsys, run, "--text", "w 1")
    assert texts() == ["w", "1"]
    for name, content in (("notes.html", "<html>mine</html>"), ("empty.htm", "")):
        Path(name).write_text(content)
        err = refused(capsys, run, "--out", name)
        assert f"--out {name} exists and is no page of milepost look: name a file" in err
        assert Path(name).read_text() == content
    Path("folder.html").mkdir()
    assert "exists and is no page" in refused(capsys, run, "--out", "folder.html")
    assert "--out must end in .html or .htm for a page" in refused(capsys, run, "--out", "a.svg")


def test_a_figure_takes_the_place_of_nothing(
    drawing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("notes.svg").write_text("mine")
    err = refused(capsys, drawing, "--figure", "gates", "--out", "notes.svg")
    assert "--out notes.svg exists already: name a file that does not, or delete it" in err
    assert Path("notes.svg").read_text() == "mine"


def test_a_path_that_cannot_be_written_is_named(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("file").touch()
    assert "cannot write file/look.html" in refused(capsys, run, "--out", "file/look.html")
    assert "choose a shorter path" in refused(capsys, run, "--out", "y" * 300 + ".html")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "expected the folder of a model, or --demo for models of its own, got neither: give"),
        ("a --demo", "or --demo for models of its own, got both: give one of the two"),
        ("a --text w --task x", "--text, --file, --task, --demo, got --text and --task: give one"),
        ("a --text w --file x", "got --text and --file: give one"),
        ("--demo --file x", "got --file and --demo: give one"),
        ("a --text w --length 8", "--length must be left out with --text, which is shown as it is"),
        ("a --file x --sequence 1", "--sequence must be left out with --file, which is shown as"),
        ("a --tokens 0", "--tokens must be at least 1, got 0: give more"),
        ("a b --figure gates", "--figure is of one model: name its folder, and no other"),
        ("--demo --figure gates", "--figure is of one model: name its folder, and no other"),
        ("a --figure gates --layer 0", "--layer and --head go together: give both, or neither"),
        ("a --figure gates --head 0", "--layer and --head go together: give both, or neither"),
        ("a --layer 0", "--layer is of --figure: add --figure gates, or leave it out and choose"),
        ("a --head 0", "--head is of --figure: add --figure gates"),
        ("a --last 3", "--last is of --figure: add --figure gates"),
        ("a", "there is no folder a: check the path"),
    ],
)
def test_mistakes_are_named_before_anything_is_read(
    arguments: str, message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, *arguments.split())
    assert [*here.iterdir()] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "w 0 i 2"], "unknown token of the flip-flop task '2': valid: 0, 1, i, r, w"),
        (["--text", " "], "text must have at least one token, got none: give one"),
        (["--text", "w\udcff"], "the text must be Unicode, got half of a surrogate pair at"),
        (["--task", "counting"], "--task must be 'flip-flop', on which"),
        (["--length", "7"], "expected an even int of at least 4"),
        (["--sequence", "-1"], "sequence must be a whole number from 0 on, got -1: 0 is first"),
        (["--file", "nowhere"], "cannot read nowhere: No such file"),
        (["--file", "run"], "cannot read run: Is a directory"),
        (["--file", "bytes"], "--file bytes must be text in UTF-8, got bytes that are not, at 2"),
        (["--device", "meta"], "device 'meta' cannot be used here"),
        (["--figure", "gates", "--layer", "2", "--head", "0"], "layer must be a whole number from"),
        (["--figure", "gates", "--layer", "0", "--head", "-1"], "head must be a whole number from"),
        (["--figure", "gates", "--last", "0"], "last must be a whole number of tokens above 0"),
        (
            ["--figure", "gates", "--out", "a.jpg"],
            "--out must end in .svg or .pdf or .png for a figure, got",
        ),
    ],
)
def test_mistakes_leave_nothing_behind(
    arguments: list[str],
    message: str,
    run: Path,
    here: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "--figure" in arguments:
        pytest.importorskip("matplotlib")
    Path("bytes").write_bytes(b"w \xff")
    assert cli.main(["look", str(run), *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert message in printed.err
    assert sorted(path.name for path in here.iterdir()) == ["bytes", "run"]


def test_a_text_that_a_model_cannot_hold_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(encoding="absolute")
    err = refused(capsys, run, "--text", " ".join(["w 0"] * 40))
    assert "absolute positions were built for 64 tokens" in err


@pytest.fixture
def drawing(run: Path) -> Path:
    pytest.importorskip("matplotlib")
    return run


@pytest.mark.parametrize(
    ("suffix", "begins"), [(".svg", b"<svg"), (".pdf", b"%PDF"), (".png", b"\x89PNG")]
)
def test_a_figure_has_the_format_of_its_name(
    suffix: str, begins: bytes, drawing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--figure", "gates", "attention", "--layer", 1, "--head", 0, "--out", f"a/b{suffix}")
    printed = looked(capsys, drawing, *given)
    assert printed.out == f"a/b{suffix}: gates and attention of layer 1, head 0\n"
    assert Path(f"a/b{suffix}").read_bytes().startswith(begins)
    assert not Path("look.html").exists()


def test_the_most_selective_head_is_drawn_unless_another_is_named(
    drawing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = looked(capsys, drawing, "--figure", "gates", "--text", "w 0 i 1 r", "--last", 2)
    layer, head = best(counted(subject(drawing, "w 0 i 1 r")))[0]
    assert printed.out == f"look.svg: gates of layer {layer}, head {head}\n"
    svg = Path("look.svg").read_text()
    assert f"layer {layer}, head {head}" in svg
    assert re.findall(r">([wir01])</text>", svg) == ["1", "r"] * 2


def test_a_figure_is_of_a_layer_that_has_what_it_shows(
    drawing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run("first", lr=1e-9, encoding_options={"first_layer_only": True})
    layers = counted(subject(run))
    head = int(layers[0].selectivity.argmax())
    assert f"of layer 0, head {head}\n" in looked(capsys, run, "--figure", "gates").out
    assert [layer.of for layer in layers] == ["gates", "attention"]
    table = rows(looked(capsys, run).out)
    assert table["layer.head"][0] == "counted, on average; else attention to other tokens"
    assert [place.split(".")[0] for place in [*table][1:-1]] == ["0"] * 2 + ["1"] * 2
    rope = write_run("rope", encoding="rope")
    err = refused(capsys, rope, "--figure", "gates", "--out", "rope.svg")
    assert "the layer has, got 'gates'" in err
    assert "name some of positions, attention" in err


@pytest.fixture
def runs(here: Path, monkeypatch: pytest.MonkeyPatch) -> dict[Path, Settings]:
    """The demo, in a moment."""
    given = {
        here / "runs/flip-flop": settings(3),
        here / "runs/text": settings(2, encoding="fox", **TEXT),
    }
    monkeypatch.setattr(demo, "runs", lambda: given)
    return given


def steps(runs: dict[Path, Settings]) -> list[int]:
    paths = [folder / rundir.CHECKPOINT for folder in runs]
    return [checkpoint.load(path)["counters"]["step"] for path in paths if path.exists()]


def test_the_demo_trains_its_models_once(
    runs: dict[Path, Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    printed = looked(capsys, "--demo", "--length", 12)
    for folder in runs:
        assert f"training {folder}\n" in printed.err
    assert steps(runs) == [3, 2]
    titles = ["cope, flip-flop (flip-flop)", "fox, text (text)"]
    assert [about["title"] for about in pages()] == titles
    before = [(folder / rundir.CHECKPOINT).stat().st_mtime_ns for folder in runs]
    printed = looked(capsys, "--demo", "--length", 12)
    assert printed.err == ""
    assert [(folder / rundir.CHECKPOINT).stat().st_mtime_ns for folder in runs] == before
    assert [about["title"] for about in pages()] == titles


def test_a_demo_that_is_stopped_goes_on_where_it_was(
    runs: dict[Path, Settings],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []

    class Interrupted(live.TrainingLine):
        def __call__(self, progress: Progress) -> None:
            seen.append(progress.step)
            if seen == [1, 2]:
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(live, "TrainingLine", Interrupted)
    assert cli.main(["look", "--demo", "--length", "12"]) == 130
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.endswith("stopped; milepost look --demo goes on from there\n")
    assert steps(runs) == [2]
    assert not Path("look.html").exists()

    looked(capsys, "--demo", "--length", 12)
    assert seen == [1, 2, 3, 1, 2]
    assert steps(runs) == [3, 2]
    assert len(pages()) == 2


def test_the_demo_refuses_another_file_before_it_trains(
    runs: dict[Path, Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("look.html").touch()
    assert "is no page of milepost look" in refused(capsys, "--demo")
    assert steps(runs) == []


def test_the_demos_page_is_opened_for_a_person_alone(
    runs: dict[Path, Settings],
    run: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    looked(capsys, "--demo", "--length", 12)
    assert opened == []
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    looked(capsys, run)
    assert opened == []
    looked(capsys, "--demo", "--length", 12)
    assert opened == [Path("look.html").resolve().as_uri()]
