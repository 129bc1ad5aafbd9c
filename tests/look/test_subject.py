"""A subject has a text for each token, and each token in one class."""

from pathlib import Path

import pytest
import torch
from torch import nn

from milepost import tasks
from milepost.errors import UsageError
from milepost.look import Subject, encode, of_task, of_text, sample
from milepost.look.counted import counted
from milepost.model import Config, Decoder
from milepost.tasks.flip_flop import FlipFlop
from milepost.tasks.passkey import Passkey
from milepost.tasks.task import Task
from milepost.tasks.text import Text

CORPUS = str(Path(__file__).parents[1] / "tasks/corpus")


def model(task: Task) -> nn.Module:
    torch.manual_seed(0)
    size = {"dim": 8, "layers": 1, "heads": 1, "max_length": 600}
    return Decoder(Config(task.vocab_size, encoding="cope", **size)).eval()


def of(task: Task, text: str) -> Subject:
    return of_task("a model", model(task), task, encode(task, text))


def members(subject: Subject) -> dict[str, list[str]]:
    return {
        name: [text for text, is_in in zip(subject.texts, given.tolist(), strict=True) if is_in]
        for name, given in subject.classes.items()
    }


@pytest.mark.parametrize("name", tasks.names())
def test_every_token_of_a_task_has_its_text_and_one_class(name: str) -> None:
    small = name == "text"  # the default corpus takes seconds to read
    task = tasks.build(name, **({"corpus": CORPUS} if small else {}))
    tokens = sample(task, 100 if small else None)[:200]
    found = of_task("a model", model(task), task, tokens)
    assert found.title == "a model"
    assert torch.equal(found.trace.tokens, tokens)
    assert len(found.texts) == len(tokens)
    assert torch.equal(torch.stack([*found.classes.values()]).sum(0), torch.ones(len(tokens)))
    assert all(given.any() for given in found.classes.values())


def test_tokens_of_words_are_named_and_sorted_by_what_they_are_for() -> None:
    found = of(FlipFlop(), "w 0 i 1 r 0")
    assert found.texts == ("w", "0", "i", "1", "r", "0")
    assert members(found) == {"w": ["w"], "i": ["i"], "r": ["r"], "bit": ["0", "1", "0"]}


def test_a_class_that_does_not_occur_is_left_out() -> None:
    found = of(FlipFlop(), "w 0")
    assert members(found) == {"w": ["w"], "bit": ["0"]}
    assert counted(found)[0].classes == ("w", "bit")


def test_bytes_are_characters_or_numbers() -> None:
    found = of(Passkey(), "né.\n7 ")
    assert found.texts == ("n", r"\xc3", r"\xa9", ".", "\n", "7", " ")
    assert members(found) == {
        "letter": ["n"],
        "other": [r"\xc3", r"\xa9"],
        "sentence end": ["."],
        "newline": ["\n"],
        "digit": ["7"],
        "space": [" "],
    }


def test_tokens_of_a_large_vocabulary_are_the_text_and_sorted_by_how_they_begin() -> None:
    task = Text(corpus=CORPUS, length=16, tokens=270)
    text = "the cat né → z.\nthe 漢"
    found = of(task, text)
    assert len(found.texts) > 15
    assert "the" in found.texts
    assert "".join(found.texts) == text
    assert members(found)["newline"] == ["\n"]
    assert members(found)["letter"].count("the") == 2
    # all but the last of a character's tokens stand for nothing
    assert members(found)["other"] == ["", "", "", "→", "", ""]
    assert {"é", "漢"} <= {*members(found)["letter"]}


def test_texts_are_sorted_by_how_they_begin_after_their_spaces() -> None:
    texts = ["The", " cat", " ", "  ", "\n", " 7th", ".", "?!", "é", ""]
    task = FlipFlop()
    found = of_text("a model", model(task), torch.zeros(10, dtype=torch.long), texts)
    assert found.texts == tuple(texts)
    assert members(found) == {
        "letter": ["The", " cat", "é"],
        "space": [" ", "  "],
        "newline": ["\n"],
        "digit": [" 7th"],
        "sentence end": [".", "?!"],
        "other": [""],
    }


def test_a_batch_of_one_row_is_as_good() -> None:
    task = FlipFlop(length=8)
    batch = task.batch(0, "test", 0, 1).inputs
    assert of_task("a", model(task), task, batch).texts == tuple(task.vocab[t] for t in batch[0])
    assert of_text("a", model(task), batch, "abcdefg").texts == tuple("abcdefg")


def test_mistakes_are_named() -> None:
    task, tokens = FlipFlop(), torch.zeros(3, dtype=torch.long)
    with pytest.raises(UsageError, match="one for each of the 3 tokens, got 2: give what each"):
        of_text("a", model(task), tokens, ["w", "0"])
    for make in (
        lambda given, tokens: of_task("a", given, task, tokens),
        lambda given, tokens: of_text("a", given, tokens, "abc"),
    ):
        with pytest.raises(UsageError, match="model must be in evaluation mode"):
            make(model(task).train(), tokens)
        with pytest.raises(UsageError, match="tokens must be one row"):
            make(model(task), tokens.expand(2, -1))
        with pytest.raises(UsageError, match="tokens must be one row"):
            make(model(task), tokens[:0])
