"""Selective copies against their definition: the copy is the mix without its blanks."""

import re
from collections import Counter
from itertools import pairwise
from math import comb, sqrt
from textwrap import dedent

import pytest

from milepost.errors import UsageError
from milepost.tasks import build
from milepost.tasks.selective_copy import SelectiveCopy


def copied(words):
    """What a reader of the definition expects at each scored position."""
    separator = words.index("|")
    symbols = [word for word in words[:separator] if word != "."]
    return dict(enumerate(symbols, start=separator + 1))


def words_of(task, size):
    batch = task.batch(0, "test", 0, size)
    rows = [[task.vocab[token] for token in row] for row in batch.tokens.tolist()]
    return rows, batch.scored.tolist()


def assert_binomial(successes, trials, probability):
    """Within five standard deviations: a true generator fails once in 1.7 million."""
    deviation = abs(successes - trials * probability)
    assert deviation <= 5 * sqrt(trials * probability * (1 - probability))


@pytest.mark.parametrize(("data", "blanks"), [(1, 0), (1, 5), (5, 0), (24, 12), (256, 256)])
def test_the_copy_is_the_mix_without_blanks_and_only_it_is_scored(data, blanks):
    rows, scored = words_of(SelectiveCopy(data=data, blanks=blanks), 16)
    for words, marks in zip(rows, scored, strict=True):
        expected = copied(words)
        assert words.count("|") == 1
        assert words.count(".") == blanks
        assert len(expected) == data
        assert len(words) == 2 * data + blanks + 1
        assert {position: words[position] for position in expected} == expected
        assert [position for position, mark in enumerate(marks) if mark] == list(expected)


def test_symbols_are_uniform_over_fourteen_and_independent():
    rows, _ = words_of(SelectiveCopy(data=64, blanks=3), 512)
    copies = [row[row.index("|") + 1 :] for row in rows]
    counts = Counter(word for row in copies for word in row)
    repeats = sum(one == other for row in copies for one, other in pairwise(row))
    assert set(counts) == set("ABCDEFGHIJKLMN")
    for symbol in counts:
        assert_binomial(counts[symbol], 512 * 64, 1 / 14)
    assert_binomial(repeats, 512 * 63, 1 / 14)


def test_every_arrangement_of_the_blanks_is_equally_likely():
    rows, _ = words_of(SelectiveCopy(data=3, blanks=2), 20_000)
    arrangements = Counter(tuple(word == "." for word in row[:5]) for row in rows)
    assert len(arrangements) == comb(5, 2)
    for count in arrangements.values():
        assert_binomial(count, 20_000, 1 / comb(5, 2))


def test_blanks_may_follow_the_last_symbol():
    rows, _ = words_of(SelectiveCopy(data=8, blanks=8), 2000)
    assert_binomial(sum(row[15] == "." for row in rows), 2000, 1 / 2)


def test_the_example_is_a_selective_copy_with_the_copy_marked():
    line, marks = re.search(r"^(.+)\n([ ^]+\^)$", SelectiveCopy.__doc__, re.MULTILINE).groups()
    words, task = line.split(), build("selective-copy", data=5, blanks=4)
    expected = copied(words)
    assert {position: words[position] for position in expected} == expected
    shown = task.show(
        [task.vocab.index(word) for word in words],
        [place in expected for place in range(task.max_length)],
    )
    assert dedent(f"{line}\n{marks}") == shown


def test_the_paper_is_the_default():
    assert build("selective-copy") == SelectiveCopy(data=256, blanks=256)
    assert build("selective-copy").vocab_size == 16
    assert build("selective-copy").max_length == 769
    assert build("selective-copy").headline == "sequence"


def test_test_sets_are_the_papers_densities_then_a_longer_one():
    sets = SelectiveCopy().test_sets()
    assert {title: (one.task.data, one.task.blanks) for title, one in sets.items()} == {
        "in": (256, 256),
        "dense": (256, 128),
        "sparse": (256, 512),
        "length x2": (512, 512),
    }
    assert [one.length_factor for one in sets.values()] == [1.0, 0.8, 1.3, 2.0]


@pytest.mark.parametrize(
    ("setting", "value"),
    [("data", 0), ("data", 2.0), ("data", "2"), ("blanks", -1), ("blanks", None), ("blanks", True)],
)
def test_bad_settings_are_the_callers_mistake(setting, value):
    with pytest.raises(UsageError, match=rf"^setting '{setting}' of the selective-copy") as error:
        build("selective-copy", **{setting: value})
    assert f"got {value!r}; leave it out for 256" in str(error.value)
