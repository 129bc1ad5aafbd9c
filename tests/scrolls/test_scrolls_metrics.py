"""Word overlap against counts by hand and a slow definition."""

import random
from functools import cache

import pytest

from milepost.errors import UsageError
from milepost.scrolls.metrics import (
    exact_match,
    f1,
    longest_common_subsequence,
    normalised,
    rouge,
    score,
)


def test_texts_are_compared_without_case_punctuation_and_articles():
    assert normalised("The cat's  An-swer,\nis A. theory!") == "cats answer is theory"
    assert exact_match("The Entailment.", "entailment") == 1.0
    assert exact_match("Not entailed", "Entailed") == 0.0
    assert exact_match("", "the") == 1.0


@pytest.mark.parametrize(
    ("answer", "right", "value"),
    [
        ("a red house", "the red houses", 0.5),  # red of two and two
        ("red red red", "red red house", 2 / 3),  # counted as often as in both
        ("one two three four", "two", 2 / 5),  # P = 1/4, R = 1
        ("nothing", "at all", 0.0),
        ("", "word", 0.0),
        ("the", "a", 0.0),
    ],
)
def test_f1(answer, right, value):
    assert f1(answer, right) == pytest.approx(value)


def test_rouge_by_hand():
    """Two texts of 6 and 7 words; in common 5 words, 3 pairs, a subsequence of 5."""
    found = rouge("The cat sat on the mat", "the Cat was sat-on the rug?")
    assert found["rouge1"] == pytest.approx(2 * 5 / 13)
    assert found["rouge2"] == pytest.approx(2 * 3 / 11)  # the cat, sat on, on the
    assert found["rougeL"] == pytest.approx(2 * 5 / 13)  # the cat sat on the


def test_rouge_l_keeps_the_order():
    found = rouge("d c b a", "a b c d")
    assert found == {"rouge1": 1.0, "rouge2": 0.0, "rougeL": 0.25}


def test_articles_count_and_words_are_not_stemmed_in_rouge():
    assert rouge("a cat", "the cats") == {"rouge1": 0.0, "rouge2": 0.0, "rougeL": 0.0}
    assert rouge("", "word")["rougeL"] == 0.0
    assert rouge("word", "Word")["rouge2"] == 0.0  # there is no pair


def test_rouge_is_that_of_rouge_score():
    scorer = pytest.importorskip("rouge_score.rouge_scorer")
    theirs = scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
    rng = random.Random(0)
    words = ["the", "cat", "Sat", "on", "a-mat", "42", "naïve", "it's"]
    for _ in range(50):
        one, other = (" ".join(rng.choices(words, k=rng.randrange(1, 30))) for _ in range(2))
        found = rouge(one, other)
        for name, value in theirs.score(other, one).items():
            assert found[name] == pytest.approx(value.fmeasure, abs=1e-12)


def slow(one, other):
    """The definition, place by place."""

    @cache
    def of(i, j):
        if i == len(one) or j == len(other):
            return 0
        if one[i] == other[j]:
            return 1 + of(i + 1, j + 1)
        return max(of(i + 1, j), of(i, j + 1))

    return of(0, 0)


def test_the_longest_common_subsequence_is_the_longest():
    rng = random.Random(1)
    for _ in range(200):
        one, other = (tuple(rng.choices("abcd", k=rng.randrange(12))) for _ in range(2))
        assert longest_common_subsequence(one, other) == slow(one, other)
    assert longest_common_subsequence(["a"] * 3000, ["a"] * 2000) == 2000


def test_a_task_is_scored_by_its_own_metric():
    right = [("red", "a blue house"), ("green",)]
    found = score("qasper", ["blue houses", "green"], right)
    assert found == {"score": pytest.approx((0.5 + 1) / 2), "f1": pytest.approx(0.75)}
    assert score("quality", ["Red!", "gray"], right) == {"score": 0.5, "exact_match": 0.5}


def test_summaries_are_scored_by_the_geometric_mean_of_the_means():
    """Each ROUGE takes its best reference on its own, and is averaged before the root."""
    answers = ["a b c d", "a b"]
    right = [("a b x y", "d c b a"), ("a b",)]
    found = score("gov_report", answers, right)
    assert found["rouge1"] == pytest.approx((1.0 + 1) / 2)  # of the second
    assert found["rouge2"] == pytest.approx((1 / 3 + 1) / 2)  # of the first
    assert found["rougeL"] == pytest.approx((0.5 + 1) / 2)  # of the first
    mean = (found["rouge1"] * found["rouge2"] * found["rougeL"]) ** (1 / 3)
    assert found["score"] == pytest.approx(mean)
    assert score("qmsum", ["x"], [("y",)])["score"] == 0.0


@pytest.mark.parametrize(
    ("answers", "right"), [([], []), (["a"], []), (["a"], [()]), (["a"], [("b",), ("c",)])]
)
def test_answers_without_questions_are_refused(answers, right):
    with pytest.raises(UsageError, match="give one answer to each question"):
        score("qasper", answers, right)


def test_an_unknown_task_brings_the_nearest():
    with pytest.raises(UsageError, match="unknown task of SCROLLS 'qasber': did you mean 'qasper'"):
        score("qasber", ["a"], [("b",)])
