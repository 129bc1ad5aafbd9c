"""Token classes name every token once, and sequences are those that models are tested with."""

from pathlib import Path

import pytest
import torch

from milepost import look, tasks
from milepost.errors import UsageError
from milepost.evaluate import TEST
from milepost.look.tokens import class_of_character, token_classes
from milepost.tasks.counting import Counting
from milepost.tasks.flip_flop import FlipFlop
from milepost.tasks.passkey import Passkey
from milepost.tasks.selective_copy import SelectiveCopy
from milepost.tasks.text import Text

CORPUS = Path(__file__).parents[1] / "tasks/corpus"
TEST_TEXT = (CORPUS / "test.txt").read_text()


def named(task: tasks.task.Task, name: str) -> set[str]:
    member = look.token_classes(task)[name]
    return {word for word, is_in in zip(task.vocab, member.tolist(), strict=True) if is_in}


@pytest.mark.parametrize("name", tasks.names())
def test_every_token_is_of_one_class(name: str) -> None:
    task = tasks.build(name)
    if len(set(task.vocab)) != len(task.vocab):
        pytest.skip("tokens of one name")
    classes = look.token_classes(task)
    assert torch.equal(torch.stack([*classes.values()]).sum(0), torch.ones(task.vocab_size).long())


def test_classes_are_what_tokens_are_for() -> None:
    assert named(FlipFlop(), "bit") == {"0", "1"}
    assert named(FlipFlop(), "w") == {"w"}
    assert named(SelectiveCopy(), "blank") == {"."}
    assert len(named(SelectiveCopy(), "symbol")) == 14
    counting = Counting(variables=3)
    assert named(counting, "pass") == {"pass;"}
    assert named(counting, "set") == {"="}
    assert named(counting, "variable") == {"a", "b", "c"}
    assert named(counting, "number") == set(map(str, range(11)))
    for task in (Text(), Passkey()):
        classes = look.token_classes(task)
        assert classes["newline"].nonzero().flatten().tolist() == [ord("\n")]
        assert classes["digit"].nonzero().flatten().tolist() == [*b"0123456789"]
        assert classes["sentence end"].nonzero().flatten().tolist() == sorted(b".!?")
        assert classes["letter"].sum() == 52


def test_sequences_are_the_first_of_the_test_stream_up_to_what_is_asked_last() -> None:
    task = Counting(max_steps=8)
    batch = task.batch(0, TEST, 0, 64)
    read = list(look.read(task, 3))
    assert len(read) == 3
    for row, tokens in enumerate(read):
        assert torch.equal(tokens, batch.tokens[row, : len(tokens)])
        assert batch.scored[row].nonzero().flatten().tolist() == [len(tokens)]


def test_a_length_is_the_tasks_setting() -> None:
    assert look.at_length(FlipFlop(length=8), 12) == FlipFlop(length=12)
    assert look.at_length(Counting(), None) == Counting()
    with pytest.raises(UsageError, match="length must be left out for the counting task"):
        look.at_length(Counting(), 12)
    with pytest.raises(UsageError, match="sequences must be a whole number above 0, got 0"):
        next(look.read(FlipFlop(), 0))


@pytest.mark.parametrize("name", tasks.names())
def test_what_a_task_says_can_be_read_again(name: str) -> None:
    task = tasks.build(name)
    if task.vocab_size == 256:
        tokens = torch.randint(128, (50,))
        text = bytes(tokens.tolist()).decode()
    else:
        tokens = task.batch(0, TEST, 0, 1).tokens[0]
        text = f"  {task.render(tokens)}\n".replace(" ", "\t ")
    assert torch.equal(look.encode(task, text), tokens)


def test_bytes_are_those_of_utf_8() -> None:
    assert look.encode(Passkey(), "né→").tolist() == [*"né→".encode()]


def test_a_tokenizer_of_the_task_is_used() -> None:
    task = Text(corpus=str(CORPUS), length=16, tokens=270)
    text = "the cat, né"
    tokens = look.encode(task, text)
    assert task.bytes_of(tokens) == text.encode()
    assert len(tokens) < len(text)
    assert tokens.max() >= 256


def test_texts_that_a_task_cannot_read_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown token of the flip-flop task '2': valid: 0, 1, i"):
        look.encode(FlipFlop(), "w 0 i 2")
    for task in (FlipFlop(), Passkey()):
        with pytest.raises(UsageError, match="text must have at least one token, got none"):
            look.encode(task, "")
        with pytest.raises(UsageError, match=r"must be Unicode, got half .* at character 1"):
            look.encode(task, "w\udcff")
    with pytest.raises(UsageError, match="at least one token"):
        look.encode(FlipFlop(), " \n")


def test_a_sample_is_one_of_the_test_sequences() -> None:
    task = Counting(max_steps=8)
    for number, tokens in enumerate(look.read(task, 3)):
        assert torch.equal(look.sample(task, sequence=number), tokens)
    assert len(look.sample(FlipFlop(), 12)) == 11  # the last bit is asked for


def test_a_sample_of_text_is_a_window_of_the_test_documents() -> None:
    task = Text(corpus=str(CORPUS), length=16)
    for number in range(3):
        window = look.sample(task, 40, number)
        assert window.dtype == torch.int64
        assert bytes(window.tolist()).decode() == TEST_TEXT[40 * number :][:40]
    assert len(look.sample(task, len(TEST_TEXT))) == len(TEST_TEXT)


def test_a_sample_of_text_has_512_tokens_unless_asked_otherwise(tmp_path: Path) -> None:
    for split in ("train", "validation", "test"):
        (tmp_path / f"{split}.txt").write_text("0123456789" * 60)
    task = Text(corpus=str(tmp_path), length=16)
    assert bytes(look.sample(task).tolist()).decode() == ("0123456789" * 60)[:512]


def test_a_sample_of_other_tokens_is_the_same_text() -> None:
    task = Text(corpus=str(CORPUS), length=16, tokens=270)
    found = b"".join(task.bytes_of(look.sample(task, 10, number)) for number in range(3))
    assert TEST_TEXT.encode().startswith(found)


def test_samples_that_are_not_there_are_refused() -> None:
    task = Text(corpus=str(CORPUS), length=16)
    for sequence in (-1, 1.0, True):
        with pytest.raises(UsageError, match="sequence must be a whole number from 0 on, got"):
            look.sample(task, None, sequence)  # type: ignore[arg-type]
    for length in (0, -3, 2.5):
        with pytest.raises(UsageError, match="length must be a whole number of tokens above 0"):
            look.sample(task, length)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"sequence 3 of 40 tokens is not in .* an earlier one"):
        look.sample(task, 40, 3)
    with pytest.raises(UsageError, match=r"sequence 0 of 512 tokens .* or a shorter length"):
        look.sample(task)
    with pytest.raises(UsageError, match="length must be left out for the counting task"):
        look.sample(Counting(), 12)
    with pytest.raises(UsageError, match="expected an even int of at least 4"):
        look.sample(FlipFlop(), 7)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aéя日", "letter"),
        ("07٣", "digit"),
        (".!?。", "sentence end"),
        ("\n", "newline"),
        (" ", "space"),
        ("-,\t\u00a0", "other"),
    ],
)
def test_characters_are_sorted_in_any_script(text: str, expected: str) -> None:
    assert {class_of_character(character) for character in text} == {expected}


def test_bytes_beyond_ascii_are_no_letters() -> None:
    classes = token_classes(Text(length=8))
    assert not classes["letter"][0x80:].any()
    assert classes["other"][0x80:].all()
