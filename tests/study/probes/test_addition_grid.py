"""The grid against models whose right and wrong answers are known, cell by cell."""

import json
import math

import pytest
import torch
from torch import nn

from milepost import tasks
from milepost.errors import UsageError
from milepost.generate import generate
from milepost.model import Config, Decoder
from milepost.study import probes
from milepost.study.probes import addition_grid
from milepost.tasks.addition import END, EQUALS, PLUS, ZERO, Addition

TASK = Addition(digits=2)


class Oracle(nn.Module):
    """Writes the right sum, whatever it is asked, if `able` says that it can do these lengths.

    Where it cannot, one token of the answer is wrong: the one at `slip`, 0 the first digit and
    -1 the end.
    """

    def __init__(self, able=lambda i, j: True, slip=0):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.able = able
        self.slip = slip
        self.read = []

    def forward(self, tokens):
        self.read.append(tuple(tokens.shape))
        logits = torch.zeros(*tokens.shape, 14)
        for row, words in enumerate(tokens.tolist()):
            plus, equals = words.index(PLUS), words.index(EQUALS)
            a, b = words[:plus], words[plus + 1 : equals]
            total = sum(int("".join(str(w - ZERO) for w in reversed(n))) for n in (a, b))
            answer = [*(ZERO + int(digit) for digit in reversed(str(total))), END]
            if not self.able(len(a), len(b)):
                answer[self.slip] = PLUS
            for place, word in enumerate(answer):
                if equals + place < len(words):
                    logits[row, equals + place, word] = 1
        return logits


def measure(model, task=TASK, **settings):
    return addition_grid.measure(
        model, task, seed=0, stop=lambda: False, **{"samples": 3, **settings}
    )


def decoder(seed=0, **settings):
    torch.manual_seed(seed)
    size = {"vocab_size": TASK.vocab_size, "dim": 16, "layers": 1, "heads": 2}
    return Decoder(Config(**{**size, **settings})).eval()


def test_a_model_that_can_add_has_the_whole_grid():
    found = measure(Oracle(), samples=5)
    assert found == {
        "grid": {"right": [[5] * 4] * 4, "samples": 5, "trained": 2},
        "mean": {"accuracy": 1.0, "in": 1.0, "out": 1.0},
    }


@pytest.mark.parametrize("slip", [0, 1, -1])
def test_a_wrong_token_anywhere_is_a_wrong_sum(slip):
    found = measure(Oracle(able=lambda i, j: max(i, j) <= 3, slip=slip))
    can, cannot = [3, 3, 3, 0], [0, 0, 0, 0]
    assert found["grid"]["right"] == [can, can, can, cannot]
    assert found["mean"] == {"accuracy": 9 / 16, "in": 1.0, "out": 5 / 12}


def test_rows_are_the_first_number_and_columns_the_second():
    found = measure(Oracle(able=lambda i, j: (i, j) == (1, 4)))
    assert found["grid"]["right"] == [[0, 0, 0, 3], [0] * 4, [0] * 4, [0] * 4]
    assert found["mean"] == {"accuracy": 1 / 16, "in": 0.0, "out": 1 / 12}


def test_sums_of_a_cell_count_one_by_one(monkeypatch):
    """As many sums as cells and samples, each counted for its own cell."""
    parity = Oracle()
    answered = parity.forward

    def wrong_for_odd(tokens):  # sums whose first number is odd
        odd = (tokens[:, 0] - ZERO) % 2 == 1
        return torch.where(odd[:, None, None], -answered(tokens), answered(tokens))

    monkeypatch.setattr(parity, "forward", wrong_for_odd)
    right = torch.tensor(measure(parity, samples=40)["grid"]["right"])
    assert ((right > 0) & (right < 40)).all()
    deviation = (right[1:].sum() - 12 * 40 / 2).abs()  # a number of one digit is odd 5 times in 9
    assert deviation <= 5 * math.sqrt(12 * 40 / 4)


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_how_many_are_read_at_once_changes_nothing(monkeypatch, rows):
    model = Oracle(able=lambda i, j: i != j)
    whole = measure(model)
    monkeypatch.setattr(addition_grid, "BATCH", rows)
    model.read.clear()
    assert measure(model) == whole
    assert max(count for count, _ in model.read) <= rows
    assert sum(count for count, _ in model.read) == 16 * 3


def test_long_sums_come_in_smaller_batches(monkeypatch):
    monkeypatch.setattr(addition_grid, "PAIRS", 400)
    model = Oracle()
    assert measure(model)["mean"]["accuracy"] == 1
    assert all(count * (length + 1) ** 2 <= 400 for count, length in model.read)


def test_what_it_reads_is_foretold():
    model = Oracle()
    measure(model, samples=9)
    told = list(addition_grid.reads(TASK, samples=9))
    assert sum(count for count, _ in told) == sum(count for count, _ in model.read) == 16 * 9
    tokens = sum(count * length for count, length in model.read)
    foretold = sum(count * length for count, length in told)
    assert tokens <= foretold <= 1.15 * tokens


def test_the_grid_can_be_of_any_size():
    found = measure(Oracle(), digits=1)
    assert found["grid"]["right"] == [[3]]
    assert found["mean"] == {"accuracy": 1.0, "in": 1.0, "out": None}
    assert len(measure(Oracle(), digits=7)["grid"]["right"]) == 7
    assert list(addition_grid.reads(TASK, digits=1, samples=3)) == [(3, 6)]


def test_numbers_of_a_hundred_digits_are_added(monkeypatch):
    monkeypatch.setattr(addition_grid, "_cells", lambda n: {304: [(n, n)]})
    right = measure(Oracle(), digits=100, samples=2)["grid"]["right"]
    assert right[99][99] == 2
    assert sum(map(sum, right)) == 2


def test_a_cell_asks_the_same_of_every_grid_task_and_seed():
    model = Oracle()
    seen = []
    answered = model.forward

    def remember(tokens):
        seen.append({tuple(word for word in row if word) for row in tokens.tolist()})
        return answered(tokens)

    model.forward = remember
    asked = []
    for task, seed in ((Addition(digits=2), 0), (Addition(digits=4), 7)):
        seen.clear()
        addition_grid.measure(model, task, seed=seed, stop=lambda: False, digits=3, samples=4)
        asked.append(set().union(*seen))
    assert asked[0] == asked[1]
    assert len(asked[0]) > 9 * 4 - 5  # of one digit and one, some are the same


def test_exact_match_is_what_greedy_decoding_writes():
    """Of a model that is right now and then."""
    task = Addition(digits=1)
    model = decoder()
    fit(model, task)
    right = 0
    for batch, _ in addition_grid._questions(task, [(1, 1)], 40, 40):
        for tokens in batch.tokens:
            words = tokens[tokens != 0]
            begin = words.tolist().index(EQUALS) + 1
            answer = words[begin:]
            new = generate(model, words[None, :begin], len(answer))[0]
            right += torch.equal(new, answer)
    found = measure(model, task, digits=1, samples=40)
    assert found["grid"]["right"] == [[right]]
    assert 0 < right < 40


def fit(model, task):
    """A few steps, so that some answers are right and some are not."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(60):
        batch = task.batch(0, "train", step, 64)
        loss = nn.functional.cross_entropy(
            model(batch.inputs).flatten(0, 1), batch.targets.flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()


def test_a_model_is_measured_twice_alike_and_left_as_it_was():
    model = decoder(encoding="randomized")
    state = torch.get_rng_state()
    first = measure(model)
    assert measure(model) == first
    assert torch.equal(torch.get_rng_state(), state)
    assert json.loads(json.dumps(first, allow_nan=False)) == first


def test_it_stops_when_told():
    model = Oracle()
    calls = iter([False, False, True])
    addition_grid.measure(model, TASK, seed=0, stop=lambda: next(calls), samples=3)
    assert len(model.read) == 2


def test_a_table_that_ends_too_early_is_said():
    with pytest.raises(UsageError):
        measure(decoder(encoding="absolute", max_length=10))


@pytest.mark.parametrize("setting", ["digits", "samples"])
@pytest.mark.parametrize("value", [0, -3, 1.5, True])
def test_bad_settings_are_the_callers_mistake(setting, value):
    for call in (
        lambda: measure(Oracle(), **{setting: value}),
        lambda: list(addition_grid.reads(TASK, **{setting: value})),
    ):
        with pytest.raises(UsageError, match=f"^{setting} of addition_grid must be a whole number"):
            call()


def test_another_task_is_refused():
    with pytest.raises(UsageError, match="expected the task addition, got counting"):
        measure(Oracle(), tasks.build("counting"))


def test_the_folder_has_it():
    assert "addition_grid" in probes.names()
    assert probes.load("addition_grid").measure is addition_grid.measure
