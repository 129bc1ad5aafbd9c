"""Sums against Python's own integers, and their lengths and digits against the exact laws."""

import re
from collections import Counter
from math import sqrt
from textwrap import dedent

import numpy as np
import pytest
import torch

from milepost.errors import UsageError
from milepost.tasks import build
from milepost.tasks.addition import Addition


def rng(seed=0):
    return np.random.default_rng(seed)


def written(batch):
    """Every sequence as a, b and the answer, numbers in reading order; all of it is scored."""
    vocab = Addition().vocab
    for tokens, scored in zip(batch.tokens.tolist(), batch.scored.tolist(), strict=True):
        words = [vocab[token] for token in tokens]
        text = "".join(words[: words.index("<end>")])
        a, b, answer = re.fullmatch(r"(\d+)\+(\d+)=(\d+)", text).groups()
        assert set(words[len(text) + 1 :]) <= {"<pad>"}
        begin = len(a) + len(b) + 2
        assert [i for i, asked in enumerate(scored) if asked] == [*range(begin, len(text) + 1)]
        yield a[::-1], b[::-1], answer[::-1]


def assert_drawn_evenly(counts, outcomes):
    """Pearson's chi-squared, within six standard deviations of its mean."""
    expected = counts.total() / len(outcomes)
    assert set(counts) <= set(outcomes)
    statistic = sum((counts[one] - expected) ** 2 / expected for one in outcomes)
    freedom = len(outcomes) - 1
    assert statistic < freedom + 6 * sqrt(2 * freedom)


@pytest.mark.parametrize("digits", [1, 2, 5, 40, 100])
def test_the_answer_is_the_sum(digits):
    for a, b, answer in written(Addition(digits=digits).batch(0, "test", 0, 200)):
        assert answer == str(int(a) + int(b))
        assert max(len(a), len(b)) <= digits
        assert (a, b) == (str(int(a)), str(int(b))), "no zero leads"
        assert "0" not in (a, b)


@pytest.mark.parametrize("lengths", [(1, 1), (1, 3), (7, 2), (100, 100), (1, 100), (100, 1)])
def test_exactly_so_many_digits(lengths):
    asked = list(written(Addition(digits=3).exactly(*lengths, rng(), 300)))
    assert len(asked) == 300
    for a, b, answer in asked:
        assert (len(a), len(b)) == lengths
        assert answer == str(int(a) + int(b))
    lengths_of_sums = {len(answer) for _, _, answer in asked}
    assert lengths_of_sums <= {max(lengths), max(lengths) + 1}


def test_a_carry_goes_through_a_whole_number():
    """9 + 99...9 has a carry in every place, and one out of the last."""
    task = Addition()
    nines = next(
        (a, b, answer)
        for seed in range(1000)
        for a, b, answer in written(task.exactly(1, 3, rng(seed), 50))
        if b == "999"
    )
    assert len(nines[2]) == 4


def test_every_pair_of_lengths_is_as_likely():
    drawn = Counter(
        (len(a), len(b)) for a, b, _ in written(Addition(digits=4).batch(0, "t", 0, 8000))
    )
    assert_drawn_evenly(drawn, [(i, j) for i in range(1, 5) for j in range(1, 5)])


def test_every_number_of_a_length_is_as_likely():
    sums = list(written(Addition().exactly(2, 1, rng(), 9000)))
    assert_drawn_evenly(Counter(int(a) for a, _, _ in sums), range(10, 100))
    assert_drawn_evenly(Counter(int(b) for _, b, _ in sums), range(1, 10))
    assert_drawn_evenly(
        Counter((int(a) // 10, int(b)) for a, b, _ in sums),
        [(i, j) for i in range(1, 10) for j in range(1, 10)],
    )


def test_a_batch_is_as_wide_as_its_longest_sum():
    task = Addition(digits=4)
    batch = task.batch(0, "train", 0, 64)
    lengths = (batch.tokens != 0).sum(1)
    assert batch.tokens.shape == (64, lengths.max())
    assert torch.equal(batch.scored.long().cumsum(1).argmax(1) + 1, lengths), "the end is scored"
    assert len(set(lengths.tolist())) > 5
    alone = task.batch(0, "train", 3, 1)
    assert (alone.tokens != 0).all()


@pytest.mark.parametrize(("digits", "longest"), [(1, 7), (20, 64), (40, 124)])
def test_the_longest_sum_has_the_declared_length(digits, longest):
    """64 and 124 are those of the published code."""
    task = Addition(digits=digits)
    assert task.max_length == longest
    assert task.exactly(digits, digits, rng(), 100).tokens.shape[1] == longest


def test_the_example_is_a_sum_with_its_answer_marked():
    line, marks = re.search(r"^(.+)\n([ ^]+\^)$", Addition.__doc__, re.MULTILINE).groups()
    task = build("addition")
    words = line.split()
    tokens = torch.tensor([[task.vocab.index(word) for word in words]])
    after = words.index("=") + 1
    scored = torch.tensor([[False] * after + [True] * (len(words) - after)])
    assert dedent(f"{line}\n{marks}") == task.show(tokens[0], scored[0])
    (a, b, answer), *_ = written(type(task.batch(0, "t", 0, 1))(tokens, scored))
    assert answer == str(int(a) + int(b))


def test_the_paper_is_the_default():
    assert build("addition") == Addition(digits=40)
    assert set(Addition().vocab) == {*"0123456789+=", "<pad>", "<end>"}


def test_test_sets_are_the_trained_lengths_then_the_papers_grid():
    sets = Addition(digits=20).test_sets()
    assert {title: one.task.digits for title, one in sets.items()} == {"in": 20, "length x2": 40}


@pytest.mark.parametrize("digits", [0, -1, 2.0, "4", True, None])
def test_bad_settings_are_the_callers_mistake(digits):
    with pytest.raises(UsageError, match=r"^setting 'digits' of the addition task") as error:
        Addition(digits=digits)
    assert f"got {digits!r}; leave it out for 40" in str(error.value)


@pytest.mark.parametrize("argument", ["i", "j", "size"])
@pytest.mark.parametrize("value", [0, 1.0, True])
def test_bad_lengths_are_the_callers_mistake(argument, value):
    arguments = {"i": 2, "j": 2, "size": 3, argument: value}
    with pytest.raises(UsageError, match=rf"^{argument} must be a whole number above 0"):
        Addition().exactly(rng=rng(), **arguments)
