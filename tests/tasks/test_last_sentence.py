"""Counting in the last sentence: a reader's own count, the published prompts, what was answered."""

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from math import sqrt
from textwrap import dedent
from typing import Any

import pytest
import torch
from torch import Tensor

from milepost.errors import UsageError
from milepost.generate import generate
from milepost.model import Config, Decoder
from milepost.tasks import build, text
from milepost.tasks.last_sentence import (
    NAMES,
    THINGS,
    LastSentence,
    answers,
    begun,
    said,
    score,
    trials,
)
from milepost.tasks.passkey import Score, greedy

SMALL = LastSentence(sentences=6, words=7, vocabulary=5, most=3)


def asked(task: LastSentence, size: int) -> list[tuple[list[list[str]], str, str]]:
    """The sentences, the word asked for and the answer given, of each sequence of a batch."""
    batch, found = task.batch(0, "test", 0, size), []
    for tokens, scored in zip(batch.tokens.tolist(), batch.scored.tolist(), strict=True):
        assert scored.count(True) == 1
        end = scored.index(True)
        words = [task.vocab[token] for token in tokens]
        assert set(words[end + 1 :]) <= {"<pad>"}
        line = " ".join(words[: end + 1])
        match = re.fullmatch(r"((?:\w+ )+\. )+how many (\w+) in the last sentence \? (\d)", line)
        assert match, line
        text = line[: line.index("how many")]
        sentences = [one.split() for one in text.split(".")[:-1]]
        found.append((sentences, match[2], match[3]))
    return found


def test_the_answer_is_the_count_in_the_last_sentence() -> None:
    for sentences, word, answer in asked(SMALL, 200):
        assert sentences[-1].count(word) == int(answer)


def assert_even(counts: Counter[Any], values: int) -> None:
    """Within five standard deviations of one in `values` each."""
    total = sum(counts.values())
    assert len(counts) == values
    for count in counts.values():
        assert abs(count - total / values) <= 5 * sqrt(total / values)


def test_every_sentence_is_like_the_last() -> None:
    """In its length and in how often it has the word, so that nothing but its place tells it."""
    found = asked(SMALL, 4000)
    assert_even(Counter(answer for _, _, answer in found), 4)
    assert_even(Counter(word for _, word, _ in found), 5)
    assert_even(Counter(len(sentences) for sentences, _, _ in found), 4)  # 3 to 6
    for place in (0, 1, -2, -1):
        assert_even(Counter(len(sentences[place]) for sentences, _, _ in found), 5)  # 3 to 7
        assert_even(Counter(sentences[place].count(word) for sentences, word, _ in found), 4)


def test_neither_other_counts_nor_lengths_tell_the_answer() -> None:
    found = [
        (float(answer), sum(s.count(word) for s in sentences[:-1]), len(sentences[-1]))
        for sentences, word, answer in asked(SMALL, 4000)
    ]
    correlations = torch.corrcoef(torch.tensor(found).T.double())
    assert correlations[0, 1:].abs().max() < 5 / sqrt(4000)


def test_the_word_stands_anywhere_and_the_others_are_even() -> None:
    places: Counter[int] = Counter()
    others: Counter[int] = Counter()
    known = SMALL.vocab[-5:]
    for sentences, word, _ in asked(SMALL, 4000):
        for sentence in sentences:
            others.update(
                (known.index(other) - known.index(word)) % 5 for other in sentence if other != word
            )
            if len(sentence) == 7:
                places.update(place for place, other in enumerate(sentence) if other == word)
    assert_even(others, 4)
    assert_even(places, 7)


def test_counting_everywhere_is_wrong() -> None:
    """As at the paper's settings, where it is right one time in millions."""
    found = asked(LastSentence(), 300)
    assert not any(sum(s.count(w) for s in sentences) == int(a) for sentences, w, a in found)


def test_the_example_is_a_sequence_with_the_answer_marked() -> None:
    line, marks = re.search(  # type: ignore[union-attr]
        r"^(.+)\n([ ^]+\^)$", LastSentence.__doc__ or "", re.MULTILINE
    ).groups()
    words = line.split()
    stops = [place for place, word in enumerate(words) if word == "."]
    assert words[stops[-2] + 1 : stops[-1]].count(words[-7]) == int(words[-1])
    task, marked = LastSentence(), [False] * (len(words) - 1) + [True]
    shown = task.show([task.vocab.index(word) for word in words], marked)
    assert dedent(f"{line}\n{marks}") == shown


def test_test_sets_are_longer_sentences_and_then_more() -> None:
    sets = SMALL.test_sets()
    assert {name: (one.task.sentences, one.task.words) for name, one in sets.items()} == {  # type: ignore[attr-defined]
        "in": (6, 7),
        "longer sentences": (6, 14),
        "more sentences": (12, 7),
        "sentences x4": (24, 7),
    }
    drawn = [max(map(len, one)) for one, _, _ in asked(sets["longer sentences"].task, 50)]  # type: ignore[arg-type]
    assert max(drawn) > 7
    assert min(len(one) for one, _, _ in asked(sets["sentences x4"].task, 50)) >= 12  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("sentences", 1), ("sentences", 2.0), ("words", 3), ("words", True)),
        *(("vocabulary", 1), ("vocabulary", 21), ("most", 0), ("most", 10), ("most", "2")),
    ],
)
def test_bad_settings_are_the_callers_mistake(setting: str, value: object) -> None:
    with pytest.raises(UsageError, match=rf"^setting '{setting}' of the last-sentence task: exp"):
        build("last-sentence", **{setting: value})


def count(prompt: str) -> tuple[str, int, int]:
    """A reader's own count: the word, its mentions in the last sentence and in all."""
    body, ask = prompt.rsplit("\n\nNow, tell me ", 1)
    match = re.fullmatch(
        r'how many times word "(\w+)" is mentioned in the last sentence\.', ask.split("\n")[0]
    )
    assert match
    sentences = re.split(r"(?<=[.?])\"?\s+", body)
    each = [len(re.findall(rf"\b{match[1]}\b", one)) for one in sentences]
    return match[1], each[-1], sum(each)


def test_the_first_prompts_are_those_of_table_6() -> None:
    alice, book = trials([2], count=1)[:2]
    assert alice.prompt.startswith(
        "Alice was beginning to get very tired of sitting by her sister on the bank, and of "
    )
    assert alice.prompt.endswith(
        "a White Rabbit with pink eyes ran close by her.\n\n"
        'Now, tell me how many times word "Alice" is mentioned in the last sentence.'
    )
    assert book.prompt == alice.prompt.replace('word "Alice"', 'word "book"')
    for trial in (alice, book):
        assert count(trial.prompt) == (trial.word, 0, 2)
        assert (trial.truth, trial.everywhere) == (0, 2)


def test_the_truth_is_what_a_reader_counts() -> None:
    found = trials([2, 5], count=200, most=3)[2:]
    for trial in found:
        assert count(trial.prompt) == (trial.word, trial.truth, trial.everywhere)
        assert trial.everywhere > trial.truth
        sentences = trial.prompt.split("\n")[0].count(".")
        assert trial.group == f"{sentences} sentences"
    assert Counter(trial.group for trial in found) == {"2 sentences": 200, "5 sentences": 200}
    assert_even(Counter(trial.truth for trial in found), 4)
    assert_even(Counter(trial.word for trial in found), len(NAMES + THINGS))
    lengths = {
        len(one.split()) for trial in found for one in trial.prompt.split("\n")[0].split(".")
    }
    assert min(lengths - {0}) < 20
    assert max(lengths) > 40


def test_trials_follow_from_the_seed_and_fewer_are_the_first_of_more() -> None:
    few = trials([4], count=3, seed=5)
    assert few[2:] == trials([2, 4], count=6, seed=5)[8:11]
    assert few[2:] != trials([4], count=3, seed=6)[2:]
    drawn = [(one.word, one.truth, one.everywhere) for one in few[2:]]
    assert drawn == [("lamp", 2, 7), ("Emma", 2, 8), ("key", 3, 8)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sentences": [1]}, "sentences must be ints of at least 2, got 1"),
        ({"count": 0}, "count must be an int from 1"),
        ({"most": 1.0}, "most must be an int from 1"),
        ({"seed": 2**32}, "seed must be an int from 0 to 4294967295"),
    ],
)
def test_trials_that_cannot_be_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        trials(**{"sentences": [2], **arguments})


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        # Table 6's
        ('The word "Alice" is mentioned 1 time in the last sentence.', 1),
        ('The word "Alice" is mentioned twice in the last sentence:\n1. "So she was', 2),
        ('The word "book" is mentioned one time in the last sentence.', 1),
        ('The word "book" is mentioned twice in the last sentence:\n1. "the book her', 2),
        (
            'The word "Alice" is mentioned in the phrase "thought Alice" in the first paragraph. '
            'In the last sentence, however, the word "Alice" is not mentioned at all.',
            0,
        ),
        ("0", 0),
        ("**3** times", 3),
        (" 12.", 12),
        ("Zero times.", 0),
        ("It appears only once.", 1),
        ("There is a single mention of it.", 1),
        ("Seventeen", 17),
        ("The word doesn’t appear in the last sentence", 0),
        ("The word isn't mentioned.", 0),
        ("It is never mentioned; 1 mention is elsewhere", 0),
        ("There are no mentions. It is mentioned twice before.", 0),
        ("None.", 0),
        ("It is not in the last sentence", 0),
        ("It cannot be found there", 0),
        ("In the last one, it is mentioned 2 times", 2),
        ('In "two and one", it is there 3 times', 3),
        ("No, I counted: 2", 2),
        ("The 1st is elsewhere, so 4.", 4),
        ("2.5", None),
        ("I do not know.", None),
        ("", None),
        ("Anyone once or twice", 1),
    ],
)
def test_the_first_number_of_an_answer_is_read(answer: str, number: int | None) -> None:
    assert said(answer) == number


def reader(write: Callable[[str, int, int], str]) -> Callable[[Tensor, int], Tensor]:
    """A model that reads the prompt as text and writes what `write` makes of the counts."""

    def continued(tokens: Tensor, most: int) -> Tensor:
        assert tokens.shape[0] == 1
        answer = write(*count(text.decode(tokens[0].tolist())))
        return torch.tensor([text.encode(answer)[:most]])

    return continued


in_bytes = {"encode": text.encode, "decode": text.decode}


def test_who_counts_in_the_last_sentence_is_right_and_who_counts_all_is_wrong() -> None:
    found = trials([2, 3], count=10)
    last = score(found, reader(lambda word, last, all_: f"{last} times"), **in_bytes)
    assert last == {
        "CoPE, Table 6": Score(2, 2),
        "2 sentences": Score(10, 10),
        "3 sentences": Score(10, 10),
    }
    everywhere = score(found, reader(lambda word, last, all_: f"{all_} times"), **in_bytes)
    assert [one.right for one in everywhere.values()] == [0, 0, 0]


def test_samples_are_answers_to_the_same_prompt() -> None:
    said_so_far: list[int] = []

    def another(word: str, last: int, everywhere: int) -> str:
        said_so_far.append(last)
        return f"{last + len(said_so_far) % 2}"

    asked_for = trials([2], count=3)[2:]
    found = list(answers(asked_for, reader(another), samples=4, **in_bytes))
    assert [one.trial for one in found] == [one for one in asked_for for _ in range(4)]
    assert [one.right for one in found] == [False, True] * 6
    assert score(asked_for, reader(another), samples=4, **in_bytes) == {"2 sentences": Score(6, 12)}
    low, high = score(asked_for, reader(another), samples=4, **in_bytes)["2 sentences"].interval
    assert 0 < low < 0.5 < high < 1


def test_a_model_is_asked_by_its_tokens() -> None:
    model = Decoder(Config(vocab_size=256, dim=16, layers=1, heads=2, encoding="rope")).eval()
    few = trials([2], count=1)[2:]
    ways = [greedy(model), partial(generate, model)]
    one, other = (next(answers(few, way, count=6, **in_bytes)).text for way in ways)
    assert one == other
    (drawn,) = score(few, partial(generate, model, temperature=0.6), samples=2, **in_bytes).values()
    assert drawn.trials == 2


def test_an_answer_can_be_begun() -> None:
    trial = trials([2], count=1)[0]
    assert begun(trial).prompt == f'{trial.prompt}\n\nThe word "Alice" is mentioned'
    assert begun(trial).truth == trial.truth


@pytest.mark.parametrize("samples", [0, 1.0, True])
def test_so_many_samples_cannot_be(samples: Any) -> None:
    with pytest.raises(UsageError, match="samples must be an int of at least 1"):
        score([], greedy(lambda tokens: tokens), samples=samples, **in_bytes)


def test_what_is_no_continuation_is_refused() -> None:
    with pytest.raises(UsageError, match=r"the new tokens alone, \(1, at most 40\), got \(1, 41\)"):
        score(trials([2], count=1), lambda tokens, most: torch.zeros(1, most + 1), **in_bytes)
