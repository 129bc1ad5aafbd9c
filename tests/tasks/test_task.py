"""What holds of every task: the registry, purity, batches and test sets."""

import random
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from milepost import tasks
from milepost.errors import UsageError
from milepost.tasks import task as base

SMALL = {
    "addition": {"digits": 6},
    "counting": {"max_steps": 12, "pass_weight": 4, "variables": 2, "trim": 32},
    "flip-flop": {"length": 20},
    "last-sentence": {"sentences": 4, "words": 5, "vocabulary": 3, "most": 2},
    "passkey": {"length": 300},
    "selective-copy": {"data": 6, "blanks": 6},
    "text": {"corpus": str(Path(__file__).parent / "corpus"), "length": 20},
}
every_task = pytest.mark.parametrize("name", tasks.names())


def test_every_file_of_the_folder_is_a_task():
    assert tasks.names() == (
        "addition",
        "counting",
        "flip-flop",
        "last-sentence",
        "passkey",
        "selective-copy",
        "text",
    )


def test_listing_the_names_imports_no_task():
    code = "import sys; from milepost import tasks; tasks.names(); print(*sys.modules, sep='\\n')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    assert "milepost.tasks" in loaded
    assert not [module for module in loaded if module.startswith("milepost.tasks.")]


@every_task
def test_a_task_describes_itself(name):
    task = tasks.build(name)
    assert task.name == name
    assert "arXiv:" in task.paper
    assert task.headline in {"token", "sequence", "last"}
    assert task.vocab_size == len(set(task.vocab)) == len(task.vocab)
    assert tasks.build(name, **SMALL[name]) != task


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("flipflop", {}, "unknown task 'flipflop': did you mean 'flip-flop'?"),
        ("task", {}, "unknown task 'task': "),
        ("flip_flop", {}, "unknown task 'flip_flop': did you mean 'flip-flop'?"),
        (
            "counting",
            {"max_step": 9},
            "unknown setting of the counting task 'max_step': did you mean 'max_steps'?",
        ),
        ("selective-copy", {"name": "x"}, "valid: blanks, data"),
    ],
)
def test_unknown_names_and_settings_are_the_callers_mistake(name, settings, message):
    with pytest.raises(UsageError) as error:
        tasks.build(name, **settings)
    assert message in str(error.value)


@every_task
def test_a_batch_is_a_function_of_its_key(name):
    task = tasks.build(name, **SMALL[name])
    keys = list(product((0, 1), ("train", "test"), (0, 1, 2)))
    batches = {key: task.batch(*key, size=4) for key in keys}
    for key in reversed(keys):
        again = tasks.build(name, **SMALL[name]).batch(*key, size=4)
        assert torch.equal(again.tokens, batches[key].tokens)
        assert torch.equal(again.scored, batches[key].scored)
    assert len({str(batch.tokens.tolist()) for batch in batches.values()}) == len(keys)


@every_task
def test_global_generators_are_neither_read_nor_moved(name):
    task = tasks.build(name, **SMALL[name])

    def drawn(global_seed):
        random.seed(global_seed)
        np.random.seed(global_seed)  # noqa: NPY002, the global generator is the point
        torch.manual_seed(global_seed)
        tokens = task.batch(0, "train", 0, 4).tokens
        after = (random.random(), np.random.random(), torch.rand(()).item())  # noqa: NPY002, the global generator is the point
        return tokens, after

    first, first_after = drawn(1)
    second, _ = drawn(2)
    assert torch.equal(first, second)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002, the global generator is the point
    torch.manual_seed(1)
    assert first_after == (random.random(), np.random.random(), torch.rand(()).item())  # noqa: NPY002, the global generator is the point


@pytest.mark.parametrize(
    ("name", "sequence"),
    [
        ("addition", "8 9 2 0 3 4 + 2 9 = 0 9 3 0 3 4 <end>"),
        ("counting", "pass; b = 0 ; b ++; b = 0 ; print b 0"),
        ("flip-flop", "w 1 i 0 r 1 i 1 i 0 i 1 i 0 i 1 i 0 r 1"),
        ("last-sentence", "bell Ada book . Ada Ada . how many Ada in the last sentence ? 2"),
        ("selective-copy", "M . . . K G . . K N . D | M K G K N D"),
        ("text", "n d ␣ y o u ␣ k n o w ␣ h o w ␣ o f t e"),
    ],
)
def test_the_streams_stay_what_they_were(name, sequence):
    """Other data under an old seed would silently disagree with every stored result."""
    task = tasks.build(name, **SMALL[name])
    assert task.render(task.batch(0, "train", 0, 1).tokens[0]) == sequence


def test_settings_are_not_part_of_the_key():
    sparse, dense = (tasks.build("flip-flop", ignore=share) for share in (0.98, 0.1))
    bits = [task.batch(3, "train", 5, 1).tokens[0, 1] for task in (sparse, dense)]
    many = [task.batch(3, "train", 5, 32).tokens[:, 1] for task in (sparse, dense)]
    assert bits[0] == bits[1]
    assert torch.equal(many[0], many[1])


@every_task
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("seed", -1),
        ("seed", 2**32),
        ("seed", 1.0),
        ("step", -1),
        ("step", True),
        ("size", 0),
        ("size", "4"),
    ],
)
def test_a_bad_key_is_the_callers_mistake(name, argument, value):
    arguments = {"seed": 0, "split": "train", "step": 0, "size": 1, argument: value}
    with pytest.raises(
        UsageError, match=f"^{argument} of a {name} batch: expected an int"
    ) as error:
        tasks.build(name).batch(**arguments)
    assert repr(value) in str(error.value)


@every_task
def test_a_batch_has_the_declared_shape_and_types(name):
    task = tasks.build(name, **SMALL[name])
    batch = task.batch(0, "train", 0, 64)
    assert batch.tokens.dtype == torch.int64
    assert batch.scored.dtype == torch.bool
    assert batch.tokens.shape == batch.scored.shape
    assert batch.tokens.shape[0] == 64
    assert batch.tokens.shape[1] <= task.max_length
    assert batch.tokens.min() >= 0
    assert batch.tokens.max() < task.vocab_size
    assert batch.scored.any(1).all(), "a sequence with nothing scored has no error rate"
    assert not batch.scored[:, 0].any(), "nothing precedes the first token"


def test_inputs_and_targets_are_one_step_apart():
    tokens = torch.tensor([[5, 6, 7, 8]])
    scored = torch.tensor([[False, False, True, True]])
    batch = base.Batch(tokens, scored)
    assert batch.inputs.tolist() == [[5, 6, 7]]
    assert batch.targets.tolist() == [[base.IGNORE, 7, 8]]
    assert torch.nn.CrossEntropyLoss().ignore_index == base.IGNORE


@every_task
def test_the_first_test_set_is_the_task_itself(name):
    task = tasks.build(name, **SMALL[name])
    first, *others = task.test_sets().items()
    assert first[0] == "in"
    assert first[1].task == task
    assert first[1].length_factor == 1
    assert all(test_set.task != task for _, test_set in others)


@every_task
@pytest.mark.parametrize("paper_scale", [False, True])
def test_test_sets_are_the_same_task_under_other_settings(name, paper_scale):
    task = tasks.build(name, **({} if paper_scale else SMALL[name]))
    for title, test_set in task.test_sets().items():
        assert type(test_set.task) is type(task)
        assert test_set.task.vocab == task.vocab
        assert test_set.sequences >= 1000
        assert test_set.about
        assert "\n" not in test_set.about
        ratio = test_set.task.max_length / task.max_length
        assert test_set.length_factor == pytest.approx(ratio, abs=0.05)
        if title.startswith("length x"):
            assert test_set.length_factor == pytest.approx(int(title[8:].split()[0]), rel=0.1)
        assert test_set.task.batch(0, title, 0, 2).tokens.shape[1] <= test_set.task.max_length


def test_show_marks_the_scored_tokens():
    task = tasks.build("counting", max_steps=4)
    words = ["a", "=", "0", ";", "print", "a", "10"]
    tokens = [task.vocab.index(word) for word in words]
    assert task.render(tokens) == "a = 0 ; print a 10"
    lines = task.show(torch.tensor(tokens), torch.tensor([False] * 6 + [True])).split("\n")
    assert lines == ["a = 0 ; print a 10", "                ^^"]
