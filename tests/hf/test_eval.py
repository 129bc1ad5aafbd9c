"""`milepost eval`: lm-eval's own numbers, for our models as for stock ones."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from milepost import cli, tasks
from milepost.commands import eval as command
from milepost.errors import UsageError
from milepost.hf import evaluation, retrofit
from milepost.hf.tokenizer import of_task
from milepost.training import checkpoint, rundir
from milepost.training.checkpoint import Counters
from milepost.training.loop import build_model
from milepost.training.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
pytest.importorskip("lm_eval")

EXAMPLE = Path(__file__).parents[2] / "examples/lm_eval_task"
BOTH = "stdlib_module,small_sums"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A stock Llama on bytes, and the same with its RoPE as one of our encodings."""
    root = tmp_path_factory.mktemp("llama")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=257,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=256,
    )
    # in fp64, as sums of fp32 differ by their rounding from processor to processor
    LlamaForCausalLM(config).double().save_pretrained(root / "stock")
    retrofit(root / "stock", "rope", probe=0).save_pretrained(root / "ours")
    tokenizer = of_task(tasks.build("text"))
    tokenizer.add_special_tokens({"eos_token": "<|end|>"})
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    for name in ("stock", "ours"):
        tokenizer.save_pretrained(root / name)
    return root


def evaluated(folder, out, *options):
    given = ["eval", folder, "--tasks", BOTH, "--include-path", EXAMPLE, "--device", "cpu"]
    assert cli.main([*map(str, given), *map(str, options), "--out", str(out)]) == 0
    return json.loads(out.read_text())


def scores(results):
    return {
        task: {key: value for key, value in of.items() if "," in key}
        for task, of in results["results"].items()
    }


def answers(results, task):
    return [sample["resps"] for sample in results["samples"][task]]


def test_the_same_as_lm_eval_itself_on_the_stock_model(folders, tmp_path):
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    ours = evaluated(folders / "ours", tmp_path / "ours.json")
    theirs = simple_evaluate(
        model="hf",
        model_args={"pretrained": str(folders / "stock")},
        tasks=BOTH.split(","),
        task_manager=TaskManager(include_path=str(EXAMPLE), include_defaults=False),
        device="cpu",
        batch_size=1,
    )
    assert theirs is not None
    assert scores(ours) == command.plain(scores(theirs))
    assert answers(ours, "small_sums") == command.plain(answers(theirs, "small_sums"))
    found, expected = (
        np.array([[float(of[0][0]) for of in row] for row in answers(results, "stdlib_module")])
        for results in (ours, theirs)
    )
    assert found.shape == (20, 3)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert found.std() > 1  # the questions differ


def test_batches_give_the_same(folders, tmp_path):
    one = evaluated(folders / "ours", tmp_path / "1.json", "--limit", 5)
    five = evaluated(folders / "ours", tmp_path / "5.json", "--limit", 5, "--batch-size", 5)
    assert scores(one) == scores(five)
    assert answers(one, "small_sums") == answers(five, "small_sums")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on bytes, whose tokenizer has no special tokens."""
    folder = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    settings = Settings(
        task="text",
        task_settings={"length": 128},
        encoding="cope",
        encoding_options={"p_max": 8},
        model={"dim": 16, "layers": 1, "heads": 2},
        steps=1,
        batch=2,
        lr=0.01,
    )
    model = build_model(settings, tasks.build("text", length=128))
    optimizer = torch.optim.AdamW(model.parameters())
    place = folder / rundir.CHECKPOINT
    checkpoint.save(place, settings, model, optimizer, Counters(), torch.device("cpu"))
    return folder


def test_a_run_without_special_tokens(run, tmp_path):
    one = evaluated(run, tmp_path / "1.json", "--limit", 4)
    four = evaluated(run, tmp_path / "4.json", "--limit", 4, "--batch-size", 4)
    assert scores(one) == scores(four)
    assert one["n-samples"]["small_sums"] == {"original": 20, "effective": 4}
    assert one["max_length"] == 128


def test_what_the_run_is_asked(run):
    """The likelihood of an answer, as our own decoder gives it."""
    from milepost.evaluate import load_run
    from milepost.hf import convert

    manager = evaluation.task_manager(["stdlib_module"], EXAMPLE)
    model, tokenizer = convert.load(run, device="cpu")
    results = evaluation.evaluate(
        model, tokenizer, ["stdlib_module"], manager=manager, limit=1, log_samples=True
    )
    sample = results["samples"]["stdlib_module"][0]
    decoder, _, _ = load_run(run, "cpu")
    for request, response in zip(sample["arguments"], sample["resps"], strict=True):
        prompt, answer = (list(text.encode()) for text in request)
        tokens = torch.tensor([prompt + answer])
        chances = decoder(tokens)[0].log_softmax(-1)[len(prompt) - 1 : -1]
        expected = chances.gather(1, torch.tensor(answer)[:, None]).sum().item()
        assert float(response[0][0]) == pytest.approx(expected, abs=1e-4)
    assert tokenizer.pad_token_id is None
    assert len(tokenizer) == 256


def test_a_likelihood_from_the_first_token_on(run):
    from milepost.hf import convert

    model, tokenizer = convert.load(run, device="cpu")
    wrapper = evaluation.without_special_tokens(wrapper_class())
    wrapped = wrapper(pretrained=model, tokenizer=tokenizer)
    assert wrapped.tok_encode("né", left_truncate_len=2) == [0xC3, 0xA9]
    with pytest.raises(UsageError, match="no token to stand before it"):
        _ = wrapped.prefix_token_id


def wrapper_class():
    from lm_eval.models.huggingface import HFLM

    return HFLM


def test_a_model_of_another_task_knows_no_prose(tmp_path, capsys):
    settings = Settings(
        task="flip-flop",
        encoding="rope",
        model={"dim": 16, "layers": 1, "heads": 2},
        steps=1,
        batch=2,
        lr=0.01,
    )
    model = build_model(settings, tasks.build("flip-flop"))
    optimizer = torch.optim.AdamW(model.parameters())
    place = tmp_path / rundir.CHECKPOINT
    checkpoint.save(place, settings, model, optimizer, Counters(), torch.device("cpu"))
    given = ["eval", tmp_path, "--tasks", "small_sums", "--include-path", EXAMPLE]
    assert cli.main([*map(str, given), "--device", "cpu"]) == 2
    assert "unknown word '+'" in capsys.readouterr().err


def test_the_table(folders, capsys):
    given = ["eval", folders / "ours", "--tasks", "stdlib_module", "--include-path", EXAMPLE]
    assert cli.main([*map(str, given), "--device", "cpu", "--limit", "3"]) == 0
    captured = capsys.readouterr()
    lines = [line.split() for line in captured.out.splitlines() if line.strip()]
    assert lines[0] == ["task", "metric", "value", "stderr", "n"]
    assert [line[:2] for line in lines[2:]] == [
        ["stdlib_module", "acc"],
        ["stdlib_module", "acc_norm"],
    ]
    assert all(line[-1] == "3" and 0 <= float(line[2]) <= 1 for line in lines[2:])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tasks", ","], "at least one task"),
        (["--tasks", "small_sums", "--limit", "0"], "--limit must be at least 1, got 0"),
        (["--tasks", "small_sums", "--num-fewshot", "-1"], "--num-fewshot must be at least 0"),
        (["--tasks", "small_sums", "--include-path", "nowhere"], "must be a folder with tasks"),
        (["--tasks", "small_sums", "--apply-chat-template"], "has no chat template"),
    ],
)
def test_mistakes(options, message, folders, capsys):
    given = ["eval", str(folders / "ours"), "--device", "cpu"]
    if "--include-path" not in options:
        options = [*options, "--include-path", str(EXAMPLE)]
    assert cli.main([*given, *options]) == 2
    assert message in capsys.readouterr().err


@pytest.fixture
def asked_for(monkeypatch):
    """Whether lm-eval's own tasks were looked through, each time; that would take ten seconds."""
    import lm_eval.tasks

    seen = []

    class Manager(lm_eval.tasks.TaskManager):
        def __init__(self, include_path=None, include_defaults=True):
            seen.append(include_defaults)
            super().__init__(include_path=include_path or str(EXAMPLE), include_defaults=False)

    monkeypatch.setattr(lm_eval.tasks, "TaskManager", Manager)
    return seen


def test_an_unknown_task_is_looked_for_among_all(asked_for):
    with pytest.raises(UsageError, match=r"unknown task 'smal_sums': did you mean 'small_sums'\?"):
        evaluation.task_manager(["stdlib_module", "smal_sums"], EXAMPLE)
    assert asked_for == [False, True]


def test_lm_eval_s_own_tasks_are_left_out_if_not_asked_for(asked_for):
    manager = evaluation.task_manager(["small_*"], EXAMPLE)
    assert sorted(manager.all_tasks) == ["small_sums", "stdlib_module"]
    assert asked_for == [False]


def test_without_a_folder_the_tasks_are_lm_eval_s_own(asked_for):
    evaluation.task_manager(["small_sums"], None)
    assert asked_for == [True]


def test_what_json_cannot_hold():
    given = {
        ("a", 1): np.float64(0.5),
        "b": [math.inf, float("nan"), np.int64(3), torch.tensor(2)],
        "c": math.sqrt,
        "d": torch.float32,
        "e": {True, None},
    }
    found = command.plain(given)
    json.dumps(found, allow_nan=False)
    assert found["('a', 1)"] == 0.5
    assert found["b"] == ["inf", "nan", 3, 2]
    assert found["c"] == "sqrt"


@pytest.mark.parametrize(
    ("package", "arguments", "message"),
    [
        ("lm_eval", ["eval", ".", "--tasks", "a"], "pip install 'milepost[eval]'"),
        ("transformers", ["eval", ".", "--tasks", "a"], "pip install 'milepost[hf]'"),
        ("transformers", ["generate", ".", "--prompt", "a"], "pip install 'milepost[hf]'"),
        ("transformers", ["convert", ".", "--out", "a"], "pip install 'milepost[hf]'"),
    ],
)
def test_without_the_extras(package, arguments, message):
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        f"from milepost.cli import main; sys.exit(main({arguments!r}))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert message in ended.stderr


def test_lm_eval_says_nothing_that_does_not_matter_here(folders, caplog):
    given = ["eval", folders / "ours", "--tasks", "small_sums", "--include-path", EXAMPLE]
    assert cli.main([*map(str, given), "--device", "cpu", "--limit", "1"]) == 0
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []
