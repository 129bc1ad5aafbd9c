"""Table 1 of the TAPE paper end to end, on files made up here and models too small to learn."""

import json
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from milepost import presets, studies
from milepost.errors import UsageError
from milepost.evaluate import load_run
from milepost.report import scrolls as report
from milepost.report.write import show_and_write
from milepost.scrolls.examples import read
from milepost.scrolls.metrics import score
from milepost.scrolls.prompts import Prompts, written
from milepost.study import work
from milepost.study.forecast import forecast
from milepost.study.plan import plan
from milepost.study.run import _declare as declare
from milepost.study.scrolls.cell import ScrollsCell, StartCell, start_folder
from milepost.tasks.text import decode, encode
from milepost.training import recipes

STUDY = studies.load("tape-table1")


def row(name, text, output):
    return {"id": name, "pid": f"{name}_0", "input": text, "output": output}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two tasks of three questions each."""
    folder = tmp_path_factory.mktemp("data")
    rows = {
        "quality": [
            row("1", "Which?\n(A) red (B) <blue>\n\nIt was red.", "red"),
            row("2", "Which?\n(A) red (B) blue\n\nIt was blue.", "blue"),
            row("2", "Which?\n(A) red (B) blue\n\nIt was blue.", "the blue one"),
        ],
        "qmsum": [row("3", "Sum it up.\n\nThey met and went.", "They met.")],
    }
    for task, lines in rows.items():
        (folder / task).mkdir()
        for split in ("train", "validation"):
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / task / f"{split}.jsonl").write_text(text)
    (folder / "corpus").mkdir()
    for split in ("train", "validation", "test"):
        (folder / "corpus" / f"{split}.txt").write_text("It was red. It was blue. " * 9)
    return folder


@pytest.fixture
def tiny(monkeypatch):
    """A recipe for what goes before that takes a moment."""
    recipe = recipes.find("pretraining", "mini")
    training = {**recipe["training"], "steps": 2, "batch": 2}
    monkeypatch.setitem(recipe, "training", training)
    monkeypatch.setitem(recipe, "task_settings", {"length": 32})
    monkeypatch.setitem(
        presets.MODELS,
        "pretraining/mini",
        {**presets.MODELS["pretraining/mini"], "dim": 16, "layers": 1, "heads": 2},
    )


def study_of(data, **settings):
    given = {"length": 160, "answer": 6, "summary": 12, "steps": 3, "warmup": 1, "batch": 2}
    paths = {"data": str(data), "corpus": str(data / "corpus")}
    return STUDY.with_settings({**paths, **given, **settings})


def run(cell, directory, stop=lambda: False):
    reports = []
    cell.run(directory, report=reports.append, stop=stop, device="cpu")
    return reports


def result_of(cell, directory):
    return json.loads(work.result_file(cell, directory).read_text())


def test_end_to_end(data, tiny, tmp_path, capsys):
    study = study_of(data)
    grid = study.cells("mini", ["rope", "tape"], 1)
    assert [(cell.arm, cell.encoding) for cell in grid] == [
        (arm, row) for arm in ("start", "quality", "qmsum") for row in ("rope", "tape")
    ]
    assert len({cell.hash for cell in grid}) == 6
    declare(study, tmp_path, "mini", grid)
    for cell in grid:
        assert cell.needs is None or cell.needs.ready(tmp_path)
        assert not isinstance(cell, StartCell) or not cell.ready(tmp_path)
        reports = run(cell, tmp_path)
        assert [one.share for one in reports] == sorted(one.share for one in reports)
        assert work.damage(cell, tmp_path) is None
        assert work.result_file(cell, tmp_path).exists()

    quality = next(cell for cell in grid if (cell.arm, cell.encoding) == ("quality", "tape"))
    found = result_of(quality, tmp_path)
    questions = read(data, "quality", "validation")
    assert [one["id"] for one in found["answers"]] == ["1", "2"]
    assert found["answers"][1]["right"] == ["blue", "the blue one"]
    answers = [one["answer"] for one in found["answers"]]
    expected = score("quality", answers, [one.outputs for one in questions])
    assert found["probes"]["scrolls"] == {"quality": {**expected, "questions": 2}}
    assert found["settings"]["encoding"] == "tape"
    assert [one["step"] for one in found["losses"]] == [1, 2, 3]

    read_back = report.load(tmp_path)
    shown = report.markdown(read_back)
    assert "| QuALITY | paper |" in shown
    assert "question 1" in shown
    console = Console(width=200, record=True)
    for renderable in report.terminal(read_back, console):
        console.print(renderable)
    assert "QMSum, question 3" in console.export_text()
    show_and_write(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<h2>Answers</h2>" in page
    assert "(B) &lt;blue&gt;" in page
    assert page.rstrip().endswith("</html>")
    assert "11.6" in capsys.readouterr().out  # the paper's TAPE on QuALITY


def test_a_task_begins_with_what_was_trained_before(data, tiny, tmp_path):
    """Without a step on the task, its answers are those of the model as it was."""
    study = study_of(data, steps=1, lr=1e-30)
    start, quality = study.cells("mini", ["rope"], 1)[:2]
    run(start, tmp_path)
    run(quality, tmp_path)
    model, settings, _ = load_run(start_folder(start, tmp_path), "cpu")
    assert settings.steps == 2
    prompts = Prompts("quality", encode, 160, 6)
    for one, kept in zip(
        read(data, "quality", "validation"), result_of(quality, tmp_path)["answers"], strict=True
    ):
        answer = decode(written(model, prompts.asked(one.input), 6, prompts.end)).strip()
        assert kept["answer"] == answer


def test_training_on_the_task_lowers_the_loss(data, tiny, tmp_path):
    study = study_of(data, steps=60, lr=3e-3, batch=4)
    start, quality = study.cells("mini", ["cope"], 1)[:2]
    run(start, tmp_path)
    run(quality, tmp_path)
    losses = [one["loss"] for one in result_of(quality, tmp_path)["losses"]]
    assert losses[-1] < 0.7 * losses[0]


def test_a_cell_that_was_stopped_goes_on_from_its_checkpoint(data, tiny, tmp_path):
    study = study_of(data, steps=6)
    start, quality = study.cells("mini", ["rope"], 1)[:2]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        run(start, folder)
    run(quality, whole)
    asked = iter([False] * 3 + [True] * 9)
    run(quality, cut, stop=lambda: next(asked))
    assert not work.result_file(quality, cut).exists()
    reports = run(quality, cut)
    assert reports[0].resumed_at > 0
    one, other = (result_of(quality, folder) for folder in (whole, cut))
    assert one["answers"] == other["answers"]
    assert one["losses"] == other["losses"]
    assert len(one["losses"]) == 6


def test_a_model_that_cannot_be_kept_has_no_result(data, tiny, tmp_path, monkeypatch):
    start = study_of(data).cells("mini", ["rope"], 1)[0]

    def full(*paths):
        raise OSError("no space")

    with monkeypatch.context() as broken:
        broken.setattr("shutil.copytree", full)
        with pytest.raises(OSError, match="no space"):
            run(start, tmp_path)
    assert not work.result_file(start, tmp_path).exists()
    assert not start.ready(tmp_path)
    run(start, tmp_path)
    assert start.ready(tmp_path)


def test_a_speed_in_tokens_foretells_the_training_of_a_task(data, tiny, tmp_path):
    grid = study_of(data).cells("mini", ["rope"], 1)
    found = forecast(
        grid, plan(grid, tmp_path), tmp_path, places=1, threads=1, device="cpu", tokens_per_second=8
    )
    of_task = next(entry for entry in found.entries if entry.arm == "quality")
    (cell,) = of_task.cells
    s = cell.settings
    tokens = s.steps * s.batch * s.accumulate * s.length
    assert of_task.speed.pace * cell.training_cost == pytest.approx(tokens / 8)


def test_runs_of_ones_own_can_be_where_it_starts(data, tiny, tmp_path):
    start = study_of(data).cells("mini", ["rope"], 1)[0]
    run(start, tmp_path)
    (tmp_path / "mine").mkdir()
    start_folder(start, tmp_path).rename(tmp_path / "mine" / "rope")
    study = study_of(data, starts=str(tmp_path / "mine"))
    rope, cope = study.cells("mini", ["rope", "cope"], 1)[:2]
    assert isinstance(rope, ScrollsCell)
    assert rope.needs is None
    run(rope, tmp_path)
    assert result_of(rope, tmp_path)["row"] == "rope"
    with pytest.raises(UsageError, match="setting 'starts' must be a folder with a run of each"):
        run(cope, tmp_path)


def test_it_says_what_it_needs(tmp_path):
    for study in (STUDY, study_of(tmp_path)):
        for scale in ("mini", "paper"):
            with pytest.raises(UsageError, match="nothing is downloaded: expected a folder with"):
                study.cells(scale, ["rope"], 1)
    assert "--settings data=DIR" in STUDY.needs


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lenght": 3}, "unknown setting 'lenght': did you mean 'length'"),
        ({"length": 0}, "setting 'length' must be a whole number of at least 1, got 0"),
        ({"lr": 0}, "setting 'lr' must be a number above 0, got 0"),
        ({"data": 3}, "setting 'data' must be a path, got 3"),
        ({"precision": "fp16"}, "setting 'precision' must be fp32 or bf16"),
    ],
)
def test_settings_that_cannot_be_are_refused(given, message):
    with pytest.raises(UsageError, match=message):
        STUDY.with_settings(given).settings("mini")


def test_the_settings_of_both_scales_fit_their_prompts():
    for scale in STUDY.scales:
        settings = STUDY.settings(scale)
        for arm in STUDY.arms:
            for limit in (settings.answer, settings.summary):
                assert Prompts(arm.name, encode, settings.length, limit).room > 100
    paper = STUDY.settings("paper")
    assert paper.batch * paper.accumulate == 64


def test_the_paper_s_figures_are_where_they_belong():
    columns = {column.test_set: column.paper for column in STUDY.tables[0].columns}
    assert columns["quality"]["tape"].mean == 11.60
    assert columns["qasper"]["randomized"].mean == 13.44
    assert columns["gov_report"]["alibi"].mean == 18.81
    assert "fire" not in columns["gov_report"]
    assert columns["contract_nli"]["xpos"].mean == 71.75


def test_a_loss_that_is_no_number_fails(data, tiny, tmp_path):
    study = study_of(data, steps=2)
    start, quality = study.cells("mini", ["rope"], 1)[:2]
    run(start, tmp_path)
    broken = torch.load(start_folder(start, tmp_path) / "checkpoint.pt", weights_only=True)
    next(iter(broken["model"].values())).fill_(float("nan"))
    torch.save(broken, start_folder(start, tmp_path) / "checkpoint.pt")
    with pytest.raises(UsageError, match="setting 'lr' must let the loss stay finite"):
        run(quality, tmp_path)
    assert replace(quality, seed=1).hash != quality.hash
