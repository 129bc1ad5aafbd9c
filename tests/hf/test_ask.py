"""`milepost ask`: answers counted as the tasks count them, whatever folder is asked."""

import json
import re
import sys

import pytest
import torch

from milepost import cli, tasks
from milepost.commands import ask
from milepost.evaluate import load_run
from milepost.generate import generate
from milepost.hf import convert
from milepost.tasks import last_sentence, passkey, text
from milepost.training import checkpoint, rundir
from milepost.training.checkpoint import Counters
from milepost.training.loop import build_model
from milepost.training.settings import Settings

CHAT = "{% for message in messages %}<{{ message['content'] }}>{% endfor %}[answer]"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on bytes, which writes nonsense."""
    folder = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    settings = Settings(
        task="text",
        task_settings={"length": 128},
        encoding="rope",
        model={"dim": 16, "layers": 1, "heads": 2, "max_length": 2048},
        steps=1,
        batch=2,
        lr=0.01,
    )
    model = build_model(settings, tasks.build("text", length=128))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    optimizer = torch.optim.AdamW(model.parameters())
    place = folder / rundir.CHECKPOINT
    checkpoint.save(place, settings, model, optimizer, Counters(), torch.device("cpu"))
    return folder


def asked(*arguments):
    assert cli.main(["ask", *map(str, arguments), "--device", "cpu"]) == 0


def lines_of(capsys):
    return [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_passkeys_are_scored_as_the_task_scores_them(run, tmp_path, capsys):
    out = tmp_path / "answers.json"
    lengths = ("--lengths", 260, 300, "--depths", 0, 0.5, "--trials", 2)
    asked(run, "passkey", *lengths, "--out", out)
    decoder, _, _ = load_run(run, "cpu")
    trials = passkey.trials(text.encode, [260, 300], depths=[0, 0.5], count=2)
    found = json.loads(out.read_text())
    assert [one["prompt"] for one in found["answers"]] == [trial.prompt for trial in trials]
    for one in found["answers"]:
        new = generate(decoder, torch.tensor([text.encode(one["prompt"])]), 8)
        assert one["answer"] == text.decode(new[0].tolist())
    assert [(one["length"], one["depth"], one["trials"]) for one in found["scores"]] == [
        (length, depth, 2) for length in ("260", "300") for depth in ("0", "0.5")
    ]
    head, _, *rows = lines_of(capsys)
    assert head == ["length", "depth", "right", "95", "%", "interval", "n"]
    assert rows == [
        [length, depth, "0.0%", "0.0%", "to", "65.8%", "2"]
        for length in ("260", "300")
        for depth in ("0", "0.5")
    ]


class Oracle:
    """In the place of a model: it writes what it is told of the prompt."""

    device = torch.device("cpu")
    generation_config = None

    def __init__(self, write):
        self.write = write

    def generate(self, tokens, attention_mask, generation_config):
        assert attention_mask.all()
        answer = text.encode(self.write(text.decode(tokens[0].tolist())))
        return torch.cat((tokens, torch.tensor([answer])), dim=1)


@pytest.fixture
def oracle(run, monkeypatch):
    """Let the folder's model be one that writes what the function says."""

    def put(write, chat=None):
        tokenizer = convert.load(run, device="cpu")[1]
        tokenizer.chat_template = chat
        monkeypatch.setattr(convert, "load", lambda folder, device: (Oracle(write), tokenizer))
        monkeypatch.setattr("milepost.commands.generate.settings", lambda model, arguments: None)

    return put


def test_a_model_that_finds_every_key(run, oracle, tmp_path):
    oracle(lambda prompt: " " + re.findall(r"Remember it\. (\d+)", prompt)[0])
    out = tmp_path / "answers.json"
    asked(run, "passkey", "--lengths", 300, "--trials", 3, "--out", out)
    found = json.loads(out.read_text())
    assert [one["depth"] for one in found["scores"]] == ["0", "0.25", "0.5", "0.75", "1"]
    assert all(one["right"] == one["trials"] == 3 for one in found["scores"])
    assert all(one["right"] and one["answer"] == f" {one['key']}" for one in found["answers"])
    low, high = found["scores"][0]["interval"]
    assert 0 < low < high == 1


def test_the_last_sentence_of_a_model_that_counts_everywhere(run, oracle, tmp_path, capsys):
    counts = {trial.prompt: trial.everywhere for trial in last_sentence.trials(count=2, seed=3)}
    oracle(lambda prompt: f"It is mentioned {counts[prompt]} times.")
    out = tmp_path / "answers.json"
    options = ("--trials", 2, "--seed", 3, "--temperature", 0.6, "--top-p", 0.9, "--samples", 2)
    asked(run, "last-sentence", *options, "--out", out)
    found = json.loads(out.read_text())
    assert found["arguments"]["temperature"] == 0.6
    assert [one["said"] for one in found["answers"]] == [
        count for count in counts.values() for _ in range(2)
    ]
    assert {one["prompts"]: (one["right"], one["trials"]) for one in found["scores"]} == {
        "CoPE, Table 6": (0, 4),
        "2 sentences": (0, 4),
        "4 sentences": (0, 4),
        "8 sentences": (0, 4),
    }
    assert ["CoPE,", "Table", "6", "0.0%", "0.0%", "to", "49.0%", "4"] in lines_of(capsys)


def test_a_begun_answer(run, oracle, tmp_path):
    ends = []

    def write(prompt):
        ends.append(prompt[-24:])
        return " not mentioned"

    oracle(write)
    out = tmp_path / "answers.json"
    asked(run, "last-sentence", "--lengths", 2, "--trials", 1, "--begin", "--out", out)
    assert len(ends) == 3
    assert all(end.endswith('" is mentioned') for end in ends)
    found = json.loads(out.read_text())
    assert [one["said"] for one in found["answers"]] == [0, 0, 0]
    assert [one["right"] for one in found["answers"]][:2] == [True, True]


def test_a_chat_template_is_put_around_the_prompt(run, oracle):
    seen = []

    def write(prompt):
        seen.append(prompt)
        return "0"

    oracle(write, chat=CHAT)
    asked(run, "last-sentence", "--lengths", 2, "--trials", 1, "--apply-chat-template")
    plain = [trial.prompt for trial in last_sentence.trials([2], count=1)]
    assert seen == [f"<{prompt}>[answer]" for prompt in plain]
    asked(
        *(run, "passkey", "--lengths", 300, "--depths", 0),
        *("--trials", 1, "--apply-chat-template"),
    )
    assert len(text.encode(seen[-1])) == 300


def test_what_is_drawn_follows_from_the_seed(run, tmp_path):
    def answers(seed, name):
        options = ("--lengths", 2, "--trials", 1, "--samples", 3, "--temperature", 1)
        options += ("--max-new-tokens", 6)
        asked(run, "last-sentence", *options, "--seed", seed, "--out", tmp_path / name)
        found = json.loads((tmp_path / name).read_text())["answers"]
        return [one["answer"] for one in found]

    first = answers(0, "1.json")
    assert first == answers(0, "2.json")
    assert first[:6] != answers(1, "3.json")[:6]
    assert len(set(first[:3])) == 3


def test_time_left_is_said_in_a_log(monkeypatch, capsys):
    from milepost.report import live

    monkeypatch.setattr(live, "LOG_SECONDS", 0.0)
    assert list(ask.with_time_left("abc", 3)) == ["a", "b", "c"]
    said = capsys.readouterr().err.splitlines()
    assert [line.split("] ")[1] for line in said] == [
        "1 of 3 answers, 0:00 left",
        "2 of 3 answers, 0:00 left",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["passkey", "--lengths", "100"], "length must be at least 247"),
        (["passkey", "--begin"], "--begin must be left out for passkey"),
        (["last-sentence", "--depths", "0"], "--depths must be left out for last-sentence"),
        (["last-sentence", "--lengths", "1"], "sentences must be ints of at least 2, got 1"),
        (["last-sentence", "--samples", "2"], "--samples must be 1 with --temperature 0, got 2"),
        (["last-sentence", "--samples", "0"], "--samples must be at least 1, got 0"),
        (["last-sentence", "--max-new-tokens", "0"], "--max-new-tokens must be at least 1"),
        (["last-sentence", "--top-p", "0.5"], "--top-p must be given with a --temperature"),
        (["last-sentence", "--temperature", "-1"], "--temperature must be a finite number"),
        (["last-sentence", "--apply-chat-template"], "has no chat template"),
        (["last-sentence", "--out", __file__], "exists already"),
    ],
)
def test_mistakes(options, message, run, capsys):
    assert cli.main(["ask", str(run), *options, "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_model_of_a_few_words_is_not_asked(tmp_path, capsys):
    small = ("--steps", "1", "--batch", "2", "--evaluate-every", "0", "--model", "dim=8")
    out = (tmp_path / "run", tmp_path / "folder")
    task = ("--task", "last-sentence", "--encoding", "rope")
    assert cli.main(["train", *task, *small, "--out", str(out[0]), "--device", "cpu"]) == 0
    assert cli.main(["convert", str(out[0]), "--out", str(out[1])]) == 0
    capsys.readouterr()
    for folder in out:
        assert cli.main(["ask", str(folder), "last-sentence", "--device", "cpu"]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"error: {folder}: its tokenizer knows the words of the task last-")
        assert "a run of the task passkey or text" in error


def test_a_folder_that_is_not_there(capsys):
    assert cli.main(["ask", "nowhere", "passkey"]) == 2
    assert "there is no folder nowhere" in capsys.readouterr().err


def test_without_transformers(monkeypatch, tmp_path, capsys):
    for name in [name for name in sys.modules if name.startswith("milepost.hf")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert cli.main(["ask", str(tmp_path), "passkey"]) == 2
    assert "pip install 'milepost[hf]'" in capsys.readouterr().err
