"""Files, prompts and answers of SCROLLS, from files that are made up here."""

import json

import numpy as np
import pytest
import torch

from milepost.errors import UsageError
from milepost.generate import generate
from milepost.model import Config, Decoder
from milepost.scrolls.examples import Example, available, read
from milepost.scrolls.prompts import ANSWER, END, Prompts, Questions, written
from milepost.tasks.text import decode, encode


def put(folder, task, split, rows):
    (folder / task).mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / task / f"{split}.jsonl").write_text(lines, encoding="utf-8")


def row(name, text, output, **more):
    return {"id": name, "pid": f"{name}_0", "input": text, "output": output, **more}


def test_answers_to_one_question_are_read_together(tmp_path):
    rows = [row("2", "Wann?\n\nim März", "März"), row("1", "Who?", "Ann"), row("2", "…", "in März")]
    put(tmp_path, "qasper", "train", rows)
    assert read(tmp_path, "qasper", "train") == [
        Example("2", "Wann?\n\nim März", ("März", "in März")),
        Example("1", "Who?", ("Ann",)),
    ]


def test_a_task_is_available_with_both_splits(tmp_path):
    for task, splits in (("quality", ("train", "validation")), ("qasper", ("train", "test"))):
        for split in splits:
            put(tmp_path, task, split, [row("1", "a", "b")])
    assert available(tmp_path) == ("quality",)
    assert available(tmp_path / "nowhere") == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"id": "1"', r"train.jsonl, line 1: expected a JSON object, got what is not JSON"),
        ("[1]", "line 1: expected text under id, input, output, got none under id, input, output"),
        (json.dumps(row("1", "a", None)), "got none under output: the test split has no answers"),
        ("\n\n", "must have an example on each line, got none"),
        (None, "cannot read"),
    ],
)
def test_files_that_are_something_else_are_refused(content, message, tmp_path):
    (tmp_path / "qasper").mkdir()
    if content is not None:
        (tmp_path / "qasper" / "train.jsonl").write_text(content)
    with pytest.raises(UsageError, match=message):
        read(tmp_path, "qasper", "train")


def test_a_question_is_cut_at_its_end():
    prompts = Prompts("qasper", encode, length=60, answer=8)
    room = 60 - 8 - len(ANSWER) - len(END)
    assert decode(prompts.asked("Who?\n\n" + "x" * 200)) == "Who?\n\n" + "x" * (room - 6) + ANSWER
    assert decode(prompts.asked("Who?")) == f"Who?{ANSWER}"
    assert decode(prompts.answered(" Ann and Ben went ")) == f"Ann and {END}"
    assert len(prompts.asked("x" * 999) + prompts.answered("y" * 99)) == 60


def test_a_summary_is_asked_for_after_the_text():
    prompts = Prompts("gov_report", encode, length=100, answer=20)
    asked = decode(prompts.asked("y" * 999))
    assert asked.startswith("Context:\nyyy")
    assert asked.endswith(f"yyy\n Please summarize this report:{ANSWER}")
    assert len(asked) + 20 + len(END) == 100


def test_a_length_without_room_is_refused():
    with pytest.raises(UsageError, match="length must be above 64 tokens"):
        Prompts("gov_report", encode, length=64, answer=10)
    assert Prompts("gov_report", encode, length=65, answer=10).room == 1


def test_only_answers_and_their_end_are_trained():
    examples = (Example("1", "Who?", ("Ann", "Ben")), Example("2", "Why?", ("because of it",)))
    task = Questions(Prompts("qasper", encode, length=60, answer=20), 256, examples)
    batch = task.batch(0, "train", 0, 60)
    seen = []
    for tokens, scored in zip(batch.tokens, batch.scored, strict=True):
        said, text = decode(tokens[scored].tolist()), decode(tokens.tolist()).rstrip("\0")
        assert text.endswith(said)
        seen.append((text.removesuffix(said), said))
    assert set(seen) == {
        (f"Who?{ANSWER}", f"Ann{END}"),
        (f"Who?{ANSWER}", f"Ben{END}"),
        (f"Why?{ANSWER}", f"because of it{END}"),
    }
    again = task.draw(np.random.default_rng(0), 3)
    assert again.tokens.equal(task.draw(np.random.default_rng(0), 3).tokens)


class Saying(torch.nn.Module):
    """A model that writes a text, byte after byte, whatever it reads."""

    def __init__(self, text):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.tokens = iter(encode(text))

    def forward(self, tokens, cache):
        logits = torch.zeros(1, tokens.shape[1], 256)
        logits[0, -1, next(self.tokens)] = 1
        return logits


@pytest.mark.parametrize(
    ("text", "count", "answer"),
    [
        (f"Ann{END}more", 10, "Ann"),
        (END, 10, ""),
        ("Ann\n##\n####", 8, "Ann\n##\n#"),
        (f"Annabell{END}", 8, "Annabell"),
        (f"Annabell{END}", 7, "Annabel"),
    ],
)
def test_an_answer_ends_at_the_sign_or_the_limit(text, count, answer):
    model = Saying(text + " " * 20)
    assert decode(written(model, encode("Who?"), count, encode(END))) == answer


def test_answers_are_written_greedily():
    torch.manual_seed(0)
    model = Decoder(Config(vocab_size=256, dim=16, layers=2, heads=2, encoding="cope")).eval()
    prompt = encode("Who?")
    expected = generate(model, torch.tensor([prompt]), 12)[0].tolist()
    assert written(model, prompt, 12, [257]) == expected
