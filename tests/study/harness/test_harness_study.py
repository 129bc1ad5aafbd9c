"""Table 9 of the TAPE paper on tasks that lie in this repository, asked of models made up here."""

import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from milepost import studies, tasks
from milepost.errors import UsageError
from milepost.report import harness as report
from milepost.report.write import show_and_write
from milepost.study import work
from milepost.study.harness.cell import scores_of
from milepost.study.harness.study import ARM
from milepost.study.run import _declare as declare
from milepost.training import checkpoint, rundir
from milepost.training.checkpoint import Counters
from milepost.training.loop import build_model
from milepost.training.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
pytest.importorskip("lm_eval")

STUDY = studies.load("tape-table9")
EXAMPLE = Path(__file__).parents[3] / "examples/lm_eval_task"
TASKS = "stdlib_module,small_sums"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two runs on bytes, with other weights."""
    root = tmp_path_factory.mktemp("models")
    for seed, name in enumerate(("tape", "rope here")):
        settings = Settings(
            task="text",
            task_settings={"length": 128},
            encoding="rope",
            model={"dim": 16, "layers": 1, "heads": 2},
            steps=1,
            batch=2,
            lr=0.01,
        )
        torch.manual_seed(seed)
        model = build_model(settings, tasks.build("text", length=128))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.5 * torch.randn_like(parameter))
        optimizer = torch.optim.AdamW(model.parameters())
        place = root / name / rundir.CHECKPOINT
        checkpoint.save(place, settings, model, optimizer, Counters(), torch.device("cpu"))
    return root


def given(models, **more):
    return STUDY.with_settings(
        {
            **{name: str(models / name) for name in ("rope here", "tape")},
            **{"include_path": str(EXAMPLE), "tasks": TASKS, "limit": 6, **more},
        }
    )


def test_every_model_is_scored_as_milepost_eval_scores_it(models, tmp_path, capsys):
    from milepost.hf import convert, evaluation

    study = given(models)
    grid = study.cells("paper", study.encodings, 1)
    assert [cell.encoding for cell in grid] == ["tape", "rope here"]  # the paper's first
    declare(study, tmp_path, "paper", grid)
    for cell in grid:
        cell.run(tmp_path, report=lambda news: None, stop=lambda: False, device="cpu")
        assert work.damage(cell, tmp_path) is None
    found = json.loads(work.result_file(grid[1], tmp_path).read_text())["probes"]["lm-eval"]
    manager = evaluation.task_manager(TASKS.split(","), EXAMPLE)
    model, tokenizer = convert.load(models / "rope here", device="cpu")
    theirs = evaluation.evaluate(model, tokenizer, TASKS.split(","), manager=manager, limit=6)
    of_module = theirs["results"]["stdlib_module"]
    assert found["stdlib_module"]["score"] == of_module["acc_norm,none"]
    assert found["stdlib_module"]["error"] == of_module["acc_norm_stderr,none"]
    assert found["stdlib_module"]["acc"] == of_module["acc,none"]
    assert set(found) == {"stdlib_module", "small_sums"}

    read_back = report.load(tmp_path)
    score, error = (100 * found["stdlib_module"][name] for name in ("score", "error"))
    shown = ("rope here", "stdlib_module", f"{score:.2f} ± {error:.2f}")
    assert shown in report.scored(read_back).rows
    console = Console(width=200, record=True)
    for renderable in report.terminal(read_back, console):
        console.print(renderable)
    shown = console.export_text()
    assert f"rope here, stdlib_module: {score:.2f} ± {error:.2f}" in shown
    assert "small_sums" in report.markdown(read_back)
    show_and_write(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert report.TITLE in page
    assert page.rstrip().endswith("</html>")
    assert capsys.readouterr().out


def test_a_result_has_a_score_and_its_error():
    results = {
        "results": {
            "one": {"alias": "one", "acc,none": 0.5, "acc_stderr,none": 0.1, "acc_norm,none": 0.6},
            "two": {"exact_match,strict": 0.25, "exact_match_stderr,strict": "N/A"},
            "three": {"f1,best": 0.75, "f1_stderr,best": 0.05},
            "group": {"alias": "group"},
        }
    }
    found = scores_of(results)
    assert set(found) == {"one", "two", "three"}
    assert found["one"]["score"] == 0.6
    assert "error" not in found["one"]  # acc_norm has none, and acc's is not its
    assert found["one"]["acc_stderr"] == 0.1
    assert (found["three"]["score"], found["three"]["error"]) == (0.75, 0.05)
    assert found["two"]["score"] == 0.25


def test_it_says_what_it_needs(models):
    with pytest.raises(UsageError, match=r"nothing is downloaded: expected the folder of each row"):
        STUDY.cells("paper", STUDY.encodings, 1)
    with pytest.raises(UsageError, match="no mini scale: add --scale paper"):
        given(models).cells("mini", ["tape"], 1)
    with pytest.raises(UsageError, match="seeds must be 1"):
        given(models).cells("paper", ["tape"], 3)
    with pytest.raises(UsageError, match="unknown row 'lora'"):
        given(models).cells("paper", ["lora"], 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lora": 3}, "setting 'lora' must be of type str"),
        ({"lora": ""}, "setting 'lora' must be of type str, and not empty"),
        ({"limit": "all"}, "setting 'limit' must be of type int"),
        ({"limit": True}, "setting 'limit' must be of type int"),
        ({"tasks": []}, "setting 'tasks' must be of type str or list, and not empty"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        STUDY.with_settings(settings)


def test_a_folder_that_has_gone_fails_alone(models, tmp_path):
    cell = given(models, tape=str(models / "nowhere")).cell("paper", ARM, "tape", 0)
    with pytest.raises(UsageError, match="setting 'tape' must be a folder with a model"):
        cell.run(tmp_path, report=lambda news: None, stop=lambda: False, device="cpu")


def test_the_paper_s_own_tasks_have_its_figures():
    study = STUDY.with_settings({"lora": "a", "tape": "b"})
    assert study.encodings == ("lora", "tape")
    assert study.tasks == STUDY.tasks
    columns = {column.test_set: column.paper for column in study.tables[0].columns}
    assert (columns["arc_challenge"]["tape"].mean, columns["arc_easy"]["lora"].mean) == (
        46.25,
        74.28,
    )
    assert columns["mmlu_stem"]["longlora"].mean == 32.54
    assert columns["mmlu_other"]["lora"].spread == 0.89
    (table,) = STUDY.with_settings({"tasks": "a, b"}).tables
    assert [column.test_set for column in table.columns] == ["a", "b"]


@pytest.mark.parametrize("name", ["tape", "include_path"])
def test_a_folder_that_is_not_there_is_named_at_once(models, tmp_path, name):
    study = given(models, **{name: str(tmp_path / "nowhere")})
    with pytest.raises(UsageError, match=f"setting '{name}' must be a folder, got .*nowhere"):
        study.cells("paper", study.encodings, 1)
