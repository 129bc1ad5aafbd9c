import contextlib
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from milepost import cli, encoding, presets, studies, tasks
from milepost.commands import train as train_command
from milepost.commands.pairs import pairs
from milepost.commands.tasks import WIDTH, wrapped
from milepost.errors import UsageError
from milepost.study.executors.local import Local
from milepost.training import recipes
from milepost.training.settings import Settings

TINY = [
    *("--task", "flip-flop", "--encoding", "cope", "--steps", "3", "--batch", "2"),
    *("--task-settings", "length=8", "--encoding-options", "p_max=3", "shared=true"),
    *("--model", "dim=16", "layers=1"),
]


def in_a_fresh_process(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


@pytest.mark.parametrize(
    "code",
    [
        "import milepost",
        "from milepost.cli import main; assert main(['--help']) == 0",
        "from milepost.cli import main; assert main(['stduy']) == 2",
    ],
)
def test_help_imports_nothing_heavy(code):
    heavy = {"torch", "numpy", "tyro", "rich", "matplotlib", "jaxtyping"}
    ended = in_a_fresh_process(f"{code}\nimport sys; print(sorted({heavy} & set(sys.modules)))")
    assert ended.stdout.splitlines()[-1] == "[]"


def test_drawing_a_report_needs_no_torch():
    ended = in_a_fresh_process(
        "import sys, milepost.report.write; from milepost import studies\n"
        "[studies.load(name) for name in studies.names()]; print('torch' in sys.modules)"
    )
    assert ended.stdout == "False\n"


def test_python_m_milepost_is_the_command():
    ended = subprocess.run(
        [sys.executable, "-m", "milepost", "stduy"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("error: unknown command 'stduy': did you mean 'study'?")
    assert len(ended.stderr.splitlines()) == 1


def test_help_names_every_command(capsys):
    folder = Path(cli.__file__).parent / "commands"
    others = {"__init__", "pairs", "subjects"}
    assert {path.stem for path in folder.glob("*.py")} - others == set(cli.COMMANDS)
    assert cli.main([]) == cli.main(["-h"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n  {name} " in printed for name in cli.COMMANDS)


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("milepost ")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: milepost {name}")


def test_an_option_that_does_not_exist_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["study", "cope-table2", "--encodngs", "rope"])
    assert ended.value.code == 2
    assert "--encodings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["study", "cope-tabel2"], "unknown study 'cope-tabel2': did you mean 'cope-table2'"),
        (["study", "cope-table2", "--encodings", "cop"], "unknown encoding 'cop'"),
        (["study", "cope-table2", "--jobs", "0"], "jobs must be at least 1"),
        (["train", "--task", "flipflop", "--encoding", "rope"], "unknown task 'flipflop'"),
        (["train", "--task", "counting", "--encoding", "roep"], "unknown encoding 'roep'"),
        (["train", *TINY, "--model", "dim"], "--model takes name=value, got 'dim'"),
        (["train", *TINY, "--task-settings", "lenght=8"], "unknown setting"),
        (["train", *TINY, "--model", "dim=8", "dim=16"], "--model has dim twice"),
        (["train", *TINY, "--encoding-options", "base=Infinity"], "encoding_options must be"),
        (["train", *TINY, "--encoding-options", "p_max=0"], "p_max must be"),
        (["train", *TINY, "--preset", "flip-flop/lui"], "did you mean 'flip-flop/liu'"),
        (["train", *TINY, "--settings", "steps=3"], "unknown name for --settings 'steps'"),
        (["train", *TINY, "--settings", "betas=0.9"], "betas must be two numbers"),
        (["train", *TINY, "--device", "meta"], "device 'meta' cannot be used here"),
        (["study", "cope-table2", "--device", "mps"], "device 'mps' cannot be used here"),
        (["study"], "give the name of a study: one of cope-"),
        (["study", "cope-table2", "--slurm", "nodes=1"], "--slurm is for jobs of a cluster"),
        (["study", "cope-table2", "--detach"], "--detach is for jobs of a cluster"),
        (["study", "cope-table2", "--tokens-per-second", "9"], "is for --dry-run"),
        (
            ["study", "cope-table2", "--dry-run", "--tokens-per-second", "0"],
            "tokens_per_second must be above 0",
        ),
        (["tasks", "flipflop"], "unknown task 'flipflop'"),
        (["report", "no/such/folder"], "no/such/folder holds no study"),
        (["evaluate", "no/such/folder"], "no/such/folder"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["train", *TINY], ["study", "cope-table2"]])
def test_a_path_that_cannot_be_written_is_one_line(command, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert cli.main([*command, "--out", str(tmp_path / "file" / "run")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: cannot write")
    assert len(error.splitlines()) == 1


def test_encodings_lists_every_encoding(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["encodings"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    listed = [line.split()[0] for line in lines if line.strip()]
    assert set(encoding.names()) <= set(listed)
    assert len(lines) < 3 * len(encoding.names())
    cope = encoding.describe("cope")
    at = next(place for place, line in enumerate(lines) if line.startswith("cope "))
    assert lines[at].endswith(cope["changes"])
    assert lines[at + 1].strip() == f"{cope['paper']}; {cope['parameters']:,} parameters"
    assert "caches decay too" in " ".join(lines)
    assert "fused: none" in " ".join(lines)


def test_tasks_lists_test_sets_and_marks_an_example(capsys):
    assert cli.main(["tasks"]) == 0
    printed = capsys.readouterr().out
    for name in tasks.names():
        assert f"\n{name}: " in f"\n{printed}"
    assert "twice the pass weight" in printed
    assert "^" in printed


def test_tasks_names_the_recipes_for_a_task_and_shows_one(capsys):
    assert cli.main(["tasks", "text"]) == 0
    printed = capsys.readouterr().out
    assert "other recipes     code, pretraining, prose (milepost train --task code)\n" in printed
    assert cli.main(["tasks", "code"]) == 0
    assert capsys.readouterr().out.startswith("code: CoPE")
    assert recipes.others("counting") == ()


def test_an_example_is_broken_between_words():
    words = " ".join(["pass;"] * 40 + ["print", "a", "2"])
    marks = " " * (len(words) - 1) + "^"
    lines = list(wrapped(words, marks))
    assert " ".join(line for line in lines if "^" not in line) == words
    assert max(map(len, lines)) <= WIDTH
    assert lines[-1].index("^") == lines[-2].index("2")


def test_values_are_read_as_json_or_as_text():
    given = ["p_max=32", "shared=true", "convention=released", "x=a=b", "cap=null", "clip=none"]
    assert pairs("options", given) == {
        "p_max": 32,
        "shared": True,
        "convention": "released",
        "x": "a=b",
        "cap": None,
        "clip": None,
    }
    for word in ("p_max", "=3"):
        with pytest.raises(UsageError, match="--options takes name=value"):
            pairs("options", [word])


def test_train_then_evaluate(capsys, tmp_path):
    out = tmp_path / "run"
    assert cli.main(["train", *TINY, "--out", str(out), "--device", "cpu"]) == 0
    settings = json.loads((out / "config.json").read_text())
    assert settings["encoding_options"] == {"p_max": 3, "shared": True}
    assert (settings["steps"], settings["model"]["dim"]) == (3, 16)
    assert "3 steps in" in capsys.readouterr().out
    assert cli.main(["train", *TINY, "--out", str(out)]) == 2
    assert "--resume" in capsys.readouterr().err

    assert cli.main(["evaluate", str(out), "--sequences", "4"]) == 0
    assert "length x4" in capsys.readouterr().out
    assert cli.main(["evaluate", str(out), "--sequences", "4", "--test-set", "sparse"]) == 0
    assert "length x4" not in capsys.readouterr().out
    assert cli.main(["evaluate", str(out), "--test-set", "sprase"]) == 2
    assert "did you mean 'sparse'" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [("--sequences", "0"), ("--seed", "-1")])
def test_evaluate_checks_its_numbers_before_anything_else(wrong, capsys):
    assert cli.main(["evaluate", "no/such/folder", *wrong]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: {wrong[0][2:]} must be")


def test_a_studys_folder_is_not_evaluated_but_reported(tmp_path, capsys):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "study.json").touch()
    given = [
        (["evaluate", "one"], "one is the folder of a study, expected that of a run"),
        (["evaluate", "one"], "`milepost report one` shows what the study measured"),
        (["report", "one", "--summary", "all.md"], "leave --summary out, or give the folder"),
        (["report", "."], "has the folders of 1 study: give one of them, as one, or add --summary"),
    ]
    with contextlib.chdir(tmp_path):
        for arguments, message in given:
            assert cli.main(arguments) == 2
            assert message in capsys.readouterr().err


def test_evaluate_ends_with_1_where_the_model_refused_a_test_set(monkeypatch, capsys):
    rates = {"token": 0.5, "sequence": 0.5, "last": 0.5, "sequences": 4}
    errors = {"in": rates, "length x2": {"refused": "the table ends"}}
    monkeypatch.setattr("milepost.evaluate.evaluate_run", lambda *_, **__: errors)
    assert cli.main(["evaluate", "run"]) == 1
    assert "length x2: the table ends" in capsys.readouterr().out
    del errors["length x2"]
    assert cli.main(["evaluate", "run"]) == 0


@pytest.fixture
def trained(monkeypatch):
    """The settings that `milepost train` asks for with more arguments, trained nowhere."""

    def settings(*arguments):
        seen = []

        def train(settings, out, **_):
            seen.append(settings)
            return SimpleNamespace(stopped=False, loss=1.0, step=3, seconds=1.0)

        monkeypatch.setattr("milepost.training.loop.train", train)
        assert cli.main(["train", *TINY, *arguments]) == 0
        return seen[0]

    return settings


def test_train_leaves_what_is_not_given_to_the_recipe(trained):
    recipe = recipes.settings("flip-flop", "mini", "cope")
    found = trained()
    for name in ("accumulate", "optimizer", "clip", "betas", "eps", "compile", "train_sequences"):
        assert getattr(found, name) == getattr(recipe, name)


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (("--optimizer", "adam"), "optimizer", "adam"),
        (("--accumulate", "4"), "accumulate", 4),
        (("--clip", "0.5"), "clip", 0.5),
        (("--clip", "none"), "clip", None),
        (("--compile",), "compile", True),
        (("--settings", "betas=[0.5,0.75]"), "betas", (0.5, 0.75)),
        (("--settings", "eps=1e-6", "train_sequences=9"), "train_sequences", 9),
        (("--settings", "evaluate_sequences=5"), "evaluate_sequences", 5),
        (("--settings", "train_sequences=none"), "train_sequences", None),
    ],
)
def test_every_setting_can_be_given(arguments, name, value, trained):
    assert getattr(trained(*arguments), name) == value


def test_flags_and_settings_are_all_there_is():
    flags = {field.name for field in fields(train_command.Arguments)}
    assert {field.name for field in fields(Settings)} == {
        *(flags & {field.name for field in fields(Settings)}),
        *train_command.OTHERS,
    }
    assert not flags & {*train_command.OTHERS}


def test_a_preset_replaces_the_recipes_model(trained):
    # TINY itself sets dim and layers
    found = trained("--preset", "flip-flop/liu").model
    longest = recipes.settings("flip-flop", "mini", "cope", task_settings={"length": 8})
    assert found == {
        **presets.model("flip-flop/liu"),
        "dim": 16,
        "layers": 1,
        "max_length": longest.model["max_length"],
    }


@pytest.fixture
def pool(monkeypatch, tmp_path):
    """Stands in for the running of cells and the drawing of the report."""
    monkeypatch.chdir(tmp_path)
    progress = SimpleNamespace(failed=[], stopped=[], running=[], queued=[])
    ended = SimpleNamespace(progress=progress, error=None, given=None, shown=[])

    def run(study, directory, **given):
        ended.given = {"study": study.name, "directory": directory, **given}
        if ended.error is not None:
            raise ended.error
        return ended.progress

    monkeypatch.setattr("milepost.study.run.run", run)
    monkeypatch.setattr("milepost.report.write.show_and_write", ended.shown.append)
    return ended


def test_study_runs_then_shows(pool):
    assert cli.main(["study", "cope-table2", "--encodings", "rope, cope", "--jobs", "3"]) == 0
    assert pool.given["study"] == "cope-table2"
    assert pool.given["encodings"] == ["rope", "cope"]
    assert (pool.given["scale"], pool.given["retry"]) == ("mini", False)
    executor = pool.given["executor"]
    assert (type(executor), executor.jobs) == (Local, 3)
    assert pool.given["seeds"] is executor.device is None
    assert pool.shown == [pool.given["directory"]] == [Path("runs/cope-table2-mini")]


def test_a_rows_name_may_have_commas(pool):
    rows = ["rope 128, 2/4", "cope-mlp", "absolute, hard attention", "fox"]
    assert cli.main(["study", "cope-table7", "--encodings", ",".join(rows)]) == 0
    assert pool.given["encodings"] == rows


def test_study_refuses_to_be_one_of_many(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert cli.main(["study", "cope-table2"]) == 2
    assert "got one of 4 of torchrun: leave torchrun out" in capsys.readouterr().err


def test_study_passes_the_device(pool):
    assert cli.main(["study", "cope-table2", "--device", "cpu"]) == 0
    assert pool.given["executor"].device == "cpu"


def test_study_passes_what_else_is_asked_for(pool):
    assert cli.main(["study", "cope-table2", "--retry", "--settings", "steps=7"]) == 0
    assert pool.given["retry"]


def test_study_says_which_arms_lack_a_setting(pool, capsys):
    assert cli.main(["study", "cope-table2", "--settings", "length=32", "steps=9"]) == 0
    said = "note: length is left out of selective-copy, whose task has no such setting\n"
    assert said in capsys.readouterr().err


def test_jobs_that_are_left_are_counted(pool, capsys):
    pool.progress.running, pool.progress.queued = [1, 2], [3]
    assert cli.main(["study", "cope-table2"]) == 0
    assert "2 jobs are with the cluster, 1 waits for others" in capsys.readouterr().err
    assert pool.shown == []


def test_study_with_stopped_cells_ends_with_1(pool):
    pool.progress.stopped.append("a cell")
    assert cli.main(["study", "cope-table3"]) == 1


def test_the_list_of_studies_needs_no_torch(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["study", "--list"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    listed = [line.split()[0] for line in lines if line and line[0] != " "]
    assert set(studies.names()) <= set(listed)
    at = next(place for place, line in enumerate(lines) if line.startswith("cope-table3 "))
    assert lines[at].split() == ["cope-table3", "Counting"]
    assert "Golovneva et al. (2024), Tables 3 and 4; 45 runs" in lines[at + 1]
    assert len(lines) < 3 * len(studies.names())
    ended = in_a_fresh_process(
        "import sys; from milepost.cli import main; main(['study', '--list'])\n"
        "print('torch' in sys.modules)"
    )
    assert ended.stdout.splitlines()[-1] == "False"


def test_study_with_failed_cells_shows_and_ends_with_1(pool):
    pool.progress.failed.append("a cell")
    assert cli.main(["study", "cope-table3", "--out", "here"]) == 1
    assert pool.shown == [Path("here")]


def test_ctrl_c_says_how_to_go_on(pool, capsys):
    pool.error = KeyboardInterrupt()
    assert cli.main(["study", "cope-table2"]) == 130
    assert "the same command goes on from here" in capsys.readouterr().err
    assert pool.shown == []


def test_ctrl_c_anywhere_else_has_no_traceback(monkeypatch, capsys):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("milepost.commands.tasks.run", interrupted)
    assert cli.main(["tasks"]) == 130
    assert capsys.readouterr().err == "stopped\n"


def test_a_text_run_is_evaluated_by_its_perplexity(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    folder = Path(__file__).parent / "tasks" / "corpus"
    out = str(tmp_path / "run")
    task = ("--task", "text", "--encoding", "absolute", "--task-settings", f"corpus={folder}")
    size = ("length=9", "--model", "dim=16", "layers=1", "max_length=20", "--steps", "1")
    assert cli.main(["train", *task, *size, "--out", out, "--device", "cpu"]) == 0
    capsys.readouterr()
    # of 36 tokens the absolute table has 20
    assert cli.main(["evaluate", out, "--by-position"]) == 1
    printed = capsys.readouterr().out
    assert "bits a byte" in printed
    assert "window 17" in printed
    assert "35: absolute positions were built for 20 tokens" in printed
    assert cli.main(["evaluate", out, "--window", "8", "--stride", "4"]) == 0
    assert "sequences" not in capsys.readouterr().out
    assert cli.main(["evaluate", out, "--window", "8", "--stride", "9"]) == 2
    assert "--stride must be at most --window" in capsys.readouterr().err
    assert cli.main(["evaluate", out, "--test-set", "in", "--sequences", "4"]) == 0
    assert "of sequences" in capsys.readouterr().out
    assert cli.main(["evaluate", out, "--test-set", "in", "--by-position"]) == 2
    assert "are for runs of the task text" in capsys.readouterr().err
