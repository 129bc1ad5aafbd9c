"""Token classes name every token once, and sequences are those that models are tested with."""

import pytest
import torch

from milepost import look, tasks
from milepost.errors import UsageError
from milepost.evaluate import TEST
from milepost.tasks.counting import Counting
from milepost.tasks.flip_flop import FlipFlop
from milepost.tasks.passkey import Passkey
from milepost.tasks.selective_copy import SelectiveCopy
from milepost.tasks.text import Text


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
