"""Flip-flop sequences against their definition, read token by token."""

import re
from collections import Counter
from math import sqrt
from textwrap import dedent

import pytest

from milepost.errors import UsageError
from milepost.tasks import build
from milepost.tasks.flip_flop import FlipFlop


def reads(words):
    """What a reader of the definition expects at each scored position, checking the form."""
    memory, expected = None, {}
    for position in range(0, len(words), 2):
        instruction, bit = words[position : position + 2]
        assert instruction in {"w", "i", "r"}
        assert bit in {"0", "1"}
        if instruction == "w":
            memory = bit
        if instruction == "r":
            expected[position + 1] = memory
    return expected


def words_of(task, size, seed=0):
    batch = task.batch(seed, "test", 0, size)
    rows = [[task.vocab[token] for token in row] for row in batch.tokens.tolist()]
    return rows, batch.scored.tolist()


def assert_binomial(successes, trials, probability):
    """Within five standard deviations: a true generator fails once in 1.7 million."""
    deviation = abs(successes - trials * probability)
    assert deviation <= 5 * sqrt(trials * probability * (1 - probability))


@pytest.mark.parametrize("length", [4, 6, 64, 512])
@pytest.mark.parametrize("ignore", [0, 0.1, 0.8, 0.98, 1])
def test_every_read_repeats_the_last_write_and_only_reads_are_scored(length, ignore):
    rows, scored = words_of(FlipFlop(length=length, ignore=ignore), 16)
    for words, marks in zip(rows, scored, strict=True):
        assert len(words) == length
        assert (words[0], words[-2]) == ("w", "r")
        expected = reads(words)
        assert {position: words[position] for position in expected} == expected
        assert [position for position, mark in enumerate(marks) if mark] == list(expected)


@pytest.mark.parametrize("ignore", [0, 0.1, 0.8, 0.98, 1])
def test_instructions_between_are_independent_draws_of_ffl(ignore):
    rows, _ = words_of(FlipFlop(length=128, ignore=ignore), 256)
    between = [words[2:-2:2] for words in rows]
    total = sum(map(len, between))
    counts = Counter(instruction for row in between for instruction in row)
    pairs = Counter(pair for row in between for pair in zip(row[::2], row[1::2], strict=True))
    law = {"w": (1 - ignore) / 2, "i": ignore, "r": (1 - ignore) / 2}
    for one, probability in law.items():
        assert_binomial(counts[one], total, probability)
        for other, next_probability in law.items():
            assert_binomial(pairs[one, other], total / 2, probability * next_probability)


def test_bits_are_uniform_after_write_and_ignore():
    rows, _ = words_of(FlipFlop(length=128), 256)
    after = Counter(pair for row in rows for pair in zip(row[::2], row[1::2], strict=True))
    for instruction in "wi":
        total = after[instruction, "0"] + after[instruction, "1"]
        assert_binomial(after[instruction, "1"], total, 0.5)
    finals = Counter(row[-1] for row in rows)
    assert_binomial(finals["1"], len(rows), 0.5)


def test_the_example_is_a_flip_flop_with_its_reads_marked():
    line, marks = re.search(r"^(.+)\n([ ^]+\^)$", FlipFlop.__doc__, re.MULTILINE).groups()
    words, task = line.split(), build("flip-flop")
    expected = reads(words)
    assert {position: words[position] for position in expected} == expected
    shown = task.show(
        [task.vocab.index(word) for word in words], [place in expected for place in range(14)]
    )
    assert dedent(f"{line}\n{marks}") == shown


def test_the_paper_is_the_default():
    assert build("flip-flop") == FlipFlop(length=512, ignore=0.8)
    assert build("flip-flop").vocab == ("w", "i", "r", "0", "1")
    assert build("flip-flop").headline == "token"


def test_test_sets_are_the_published_ones_then_longer_ones():
    sets = FlipFlop().test_sets()
    assert {title: (one.task.length, one.task.ignore) for title, one in sets.items()} == {
        "in": (512, 0.8),
        "sparse": (512, 0.98),
        "dense": (512, 0.1),
        "length x2": (1024, 0.8),
        "length x2 sparse": (1024, 0.98),
        "length x4": (2048, 0.8),
    }
    published = [sets[title].sequences for title in ("in", "sparse", "dense")]
    assert published == [16_000, 160_000, 4_000]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("length", 5),
        ("length", 2),
        ("length", 8.0),
        ("length", "8"),
        ("length", True),
        ("ignore", -0.1),
        ("ignore", 1.1),
        ("ignore", float("nan")),
        ("ignore", "0.8"),
        ("ignore", True),
    ],
)
def test_bad_settings_are_the_callers_mistake(setting, value):
    with pytest.raises(UsageError, match=rf"^setting '{setting}' of the flip-flop") as error:
        build("flip-flop", **{setting: value})
    default = getattr(FlipFlop(), setting)
    assert f"got {value!r}; leave it out for {default}" in str(error.value)
