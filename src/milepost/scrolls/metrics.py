"""How answers are scored: word overlap, exact match, ROUGE; the best of all right answers counts.

With c the number of words (or pairs of words) in common, each as often as in both,

    F1 = 2 P R / (P + R)    P = c / those of the answer    R = c / those of the right one

`f1` and `exact_match` compare texts in lower case without punctuation and the articles a, an, the
(Rajpurkar et al. 2016, SQuAD, arXiv:1606.05250). ROUGE-1 and ROUGE-2 are F1 of words and of pairs
of neighbours, ROUGE-L has as c the length of the longest common subsequence (Lin 2004, "ROUGE: A
Package for Automatic Evaluation of Summaries"); words are runs of a-z and 0-9 in lower case and
are not stemmed. That is what SCROLLS' own code takes of the package rouge_score.

Over a task, each ROUGE is averaged over its questions, and the geometric mean is that of the three
averages, as in SCROLLS' own code. All are from 0 to 1 here.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise

from milepost.errors import UsageError
from milepost.scrolls.kinds import kind_of

ARTICLES = re.compile(r"\b(a|an|the)\b")
ROUGES = ("rouge1", "rouge2", "rougeL")


def normalised(text: str) -> str:
    """In lower case, without punctuation, articles and superfluous white space."""
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(ARTICLES.sub(" ", kept).split())


def f1(answer: str, right: str) -> float:
    """Overlap of the words."""
    return overlap(normalised(answer).split(), normalised(right).split())


def exact_match(answer: str, right: str) -> float:
    """1 or 0."""
    return float(normalised(answer) == normalised(right))


def rouge(answer: str, right: str) -> dict[str, float]:
    """ROUGE-1, ROUGE-2 and ROUGE-L, as "rouge1", "rouge2" and "rougeL"."""
    ours, theirs = (re.findall("[a-z0-9]+", text.lower()) for text in (answer, right))
    longest = _f1(longest_common_subsequence(ours, theirs), len(ours), len(theirs))
    pairs = [list(pairwise(words)) for words in (ours, theirs)]
    return {"rouge1": overlap(ours, theirs), "rouge2": overlap(*pairs), "rougeL": longest}


def overlap(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> float:
    """F1 of what both have."""
    return _f1((Counter(ours) & Counter(theirs)).total(), len(ours), len(theirs))


def _f1(common: int, ours: int, theirs: int) -> float:
    return 2 * common / (ours + theirs) if common else 0.0


def longest_common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest sequence that both have, with gaps or without."""
    # Bit j of `rows` is 0 where the length grows from other[:j] to other[:j + 1] (Crochemore 2001)
    places: dict[str, int] = {}
    for place, word in enumerate(other):
        places[word] = places.get(word, 0) | 1 << place
    full = (1 << len(other)) - 1
    rows = full
    for word in one:
        met = rows & places.get(word, 0)
        rows = ((rows + met) | (rows - met)) & full
    return len(other) - rows.bit_count()


def score(task: str, answers: Sequence[str], right: Sequence[Sequence[str]]) -> dict[str, float]:
    """A task's metrics over all of its questions; "score" is the one that SCROLLS counts.

    Args:
        task: its name, as "qasper".
        answers: one for each question.
        right: all that are right, of each question.
    """
    if not answers or len(answers) != len(right) or not all(right):
        raise UsageError(
            f"answers and right must be of the same questions, at least one, each with a right "
            f"answer, got {len(answers)} and {len(right)}: give one answer to each question"
        )
    metric = kind_of(task).metric
    if metric != "rouge":
        one: Callable[[str, str], float] = f1 if metric == "f1" else exact_match
        found = _mean([max(one(a, r) for r in rs) for a, rs in zip(answers, right, strict=True)])
        return {"score": found, metric: found}
    each = [[rouge(a, r) for r in rs] for a, rs in zip(answers, right, strict=True)]
    means = {name: _mean([max(one[name] for one in ones) for ones in each]) for name in ROUGES}
    product = means["rouge1"] * means["rouge2"] * means["rougeL"]
    return {"score": product ** (1 / 3), **means}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
