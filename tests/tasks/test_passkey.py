"""Passkeys: the published words, exact lengths in any tokens, and who has found the key."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from textwrap import dedent
from typing import Any

import pytest
import torch
from torch import Tensor

from milepost.errors import UsageError
from milepost.generate import generate
from milepost.model import Config, Decoder
from milepost.tasks import build, passkey, text
from milepost.tasks.passkey import (
    FRAME,
    SHORT_FRAME,
    Passkey,
    Score,
    fitted,
    greedy,
    score,
    trials,
    wilson,
)

GARBAGE = (
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
)


def published(key: str, before: int, after: int) -> str:
    """The prompt as LongLoRA's code joins it."""
    endless = " ".join([GARBAGE] * 5000)
    lines = [
        "There is an important info hidden inside a lot of irrelevant text. Find it and memorize "
        "them. I will quiz you about the important information there.",
        endless[:before],
        f"The pass key is {key}. Remember it. {key} is the pass key.",
        endless[:after],
        "What is the pass key? The pass key is",
    ]
    return "\n".join(lines)


def key_in(prompt: str) -> str:
    """What a reader finds, who checks that it is said twice."""
    first, second = re.findall(
        r"The pass key is (\d+)\. Remember it\. (\d+) is the pass key\.", prompt
    )[0]
    assert first == second
    return first


def words(prompt: str) -> list[int]:
    """A tokeniser of words, digits and single characters, with a first token of its own."""
    return [1, *(len(part) for part in re.findall(r" ?[A-Za-z]+|\d|\s|.", prompt))]


def fours(prompt: str) -> list[int]:
    """A tokeniser of four characters at a time."""
    return [hash(prompt[i : i + 4]) % 997 for i in range(0, len(prompt), 4)]


def halves(prompt: str) -> list[int]:
    """One that makes two tokens of each character, so that no odd length can be had."""
    return [0] * (2 * len(prompt))


every_tokeniser = pytest.mark.parametrize("encode", [text.encode, words, fours])


@pytest.mark.parametrize(("before", "after"), [(0, 0), (1, 0), (0, 91), (90, 89), (1000, 3000)])
def test_the_prompt_is_the_published_one(before: int, after: int) -> None:
    assert passkey.prompt("71432", before, after) == published("71432", before, after)


@every_tokeniser
@pytest.mark.parametrize("length", [300, 301, 302, 303, 999, 2048])
@pytest.mark.parametrize("depth", [0.0, 0.3, 1.0])
def test_a_prompt_has_exactly_so_many_tokens(
    encode: Callable[[str], list[int]], length: int, depth: float
) -> None:
    found = fitted(encode, length, depth, "48151")
    assert len(encode(found)) == length
    before, after = (len(found.split("\n")[line]) for line in (1, 3))
    assert found == published("48151", before, after)
    assert before == round(depth * (before + after))


def test_every_length_can_be_had_in_words() -> None:
    """Also those where a cut within a word makes one token more than the word itself."""
    shortest = len(words(passkey.prompt("48151", 0, 0)))
    for length in range(shortest, shortest + 60):
        assert len(words(fitted(words, length, 0.5, "48151"))) == length


@pytest.mark.parametrize(
    ("encode", "length", "depth", "said"),
    [
        (text.encode, 100, 0.5, r"length must be at least 247 tokens, which a prompt without"),
        (text.encode, 0, 0.5, "length must be a whole number of tokens above 0, got 0"),
        (text.encode, 300.0, 0.5, "length must be a whole number of tokens above 0"),
        (text.encode, 400, 1.1, "depth must be from 0, the beginning, to 1, the end, got 1.1"),
        (text.encode, 400, math.nan, "depth must be from 0"),
        (text.encode, 400, True, "depth must be from 0"),
        (halves, 1001, 0.5, "no cut of the garbage makes a prompt of exactly 1001 tokens"),
        (lambda prompt: text.encode(prompt)[:512], 600, 0.5, "switch its truncation off"),
    ],
)
def test_a_prompt_that_cannot_be_is_refused(
    encode: Callable[[str], list[int]], length: Any, depth: Any, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        fitted(encode, length, depth, "48151")


def test_trials_are_a_grid_of_distinct_keys() -> None:
    found = trials(text.encode, [300, 400], depths=[0, 0.5], count=100)
    assert Counter((one.length, one.depth) for one in found) == {
        (300, 0.0): 100,
        (300, 0.5): 100,
        (400, 0.0): 100,
        (400, 0.5): 100,
    }
    for one in found:
        assert len(text.encode(one.prompt)) == one.length
        assert key_in(one.prompt) == one.key
        assert re.fullmatch("[1-9][0-9]{4}", one.key)
    for first in range(0, 400, 100):
        assert len({one.key for one in found[first : first + 100]}) == 100
    assert found[0].key != found[100].key != found[200].key


def test_trials_follow_from_the_seed_and_fewer_are_the_first_of_more() -> None:
    few = trials(text.encode, [300], depths=[0.5], count=3, seed=4)
    more = trials(text.encode, [260, 300], depths=[0.0, 0.5], count=5, seed=4)
    assert few == [one for one in more if (one.length, one.depth) == (300, 0.5)][:3]
    assert few == trials(text.encode, [300], depths=[0.5], count=3, seed=4)
    other = trials(text.encode, [300], depths=[0.5], count=3, seed=5)
    assert {one.key for one in few}.isdisjoint(one.key for one in other)
    assert [one.key for one in trials(words, [300], depths=[0.5], count=3, seed=4)] == [
        one.key for one in few
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"count": 0}, "count must be from 1 to 90000"),
        ({"count": 90_001}, "count must be from 1 to 90000"),
        ({"seed": -1}, "seed must be an int from 0"),
        ({"seed": 0.0}, "seed must be an int from 0"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        trials(text.encode, [300], **arguments)


def reader(write: Callable[[str], str]) -> Callable[[Tensor, int], Tensor]:
    """A model that reads the prompt as text and writes what `write` makes of the key."""

    def continued(tokens: Tensor, count: int) -> Tensor:
        assert tokens.shape[0] == 1
        answer = write(key_in(text.decode(tokens[0].tolist())))
        return torch.tensor([text.encode(answer)[:count]])

    return continued


@pytest.mark.parametrize(
    ("write", "right"),
    [
        (lambda key: f" {key}", True),
        (lambda key: key, True),
        (lambda key: f"\n{key}. Remember", True),
        (lambda key: f" {key}9", True),  # LongLoRA would not have seen the 9 either
        (lambda key: f" {key[:4]}", False),
        (lambda key: f" {int(key) - 1}", False),
        (lambda key: f" 1{key}", False),
        (lambda key: f" :{key}", False),
        (lambda key: "", False),
    ],
)
def test_an_answer_is_right_where_it_begins_with_the_key(
    write: Callable[[str], str], right: bool
) -> None:
    asked = trials(text.encode, [300], depths=[0.2], count=4)
    found = score(asked, reader(write), encode=text.encode, decode=text.decode)
    assert found == {(300, 0.2): Score(4 * right, 4)}


def test_scores_are_apart_by_length_and_depth_and_add_up() -> None:
    """A model that sees the first 280 tokens only finds a key that lies there."""
    asked = trials(text.encode, [260, 900], depths=[0.0, 1.0], count=5)

    def short_sighted(tokens: Tensor, count: int) -> Tensor:
        seen = text.decode(tokens[0, :280].tolist())
        answer = key_in(seen) if "Remember" in seen else "?"
        return torch.tensor([text.encode(f" {answer}")])

    found = score(asked, short_sighted, encode=text.encode, decode=text.decode)
    assert {cell: one.right for cell, one in found.items()} == {
        (260, 0.0): 5,
        (260, 1.0): 5,
        (900, 0.0): 5,
        (900, 1.0): 0,
    }
    assert sum(found.values(), Score(0, 0)) == Score(15, 20)
    assert Score(15, 20).share == 0.75


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (torch.zeros(1, 9).long(), r"the new tokens alone, \(1, at most 8\), got \(1, 9\)"),
        (torch.zeros(0, 9).long(), r"\(1, at most 8\), got \(0, 9\)"),
        (torch.zeros(8).long(), r"\(1, at most 8\), got \(8,\)"),
        ([1, 2], "what generate returns must be a tensor, got list"),
    ],
)
def test_what_is_no_continuation_is_refused(returned: Any, said: str) -> None:
    asked = trials(text.encode, [300], depths=[0.2], count=1)
    with pytest.raises(UsageError, match=said):
        score(asked, lambda tokens, count: returned, encode=text.encode, decode=text.decode)


def test_greedy_writes_what_decoding_with_a_cache_writes() -> None:
    config = Config(vocab_size=256, dim=16, layers=2, heads=2, encoding="rope")
    model = Decoder(config).eval()
    tokens = torch.randint(256, (1, 12))
    assert greedy(model)(tokens, 6).equal(generate(model, tokens, 6))
    (trial,) = asked = trials(text.encode, [260], depths=[0.5], count=1)
    for way in (greedy(model), partial(generate, model)):
        found = score(asked, way, encode=text.encode, decode=text.decode)
        assert found == {(260, 0.5): Score(0, 1)}, trial.key


def by_the_equation(right: int, trials: int) -> tuple[float, float]:
    """Where |p − p̂| = z √(p(1 − p)/n), by bisection on either side."""

    def beyond(p: float) -> bool:
        return abs(p - right / trials) > 1.959964 * math.sqrt(p * (1 - p) / trials)

    ends = []
    for outer in (0.0, 1.0):
        low, high = right / trials, outer
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if beyond(middle) else (middle, high)
        ends.append(low)
    return ends[0], ends[1]


@pytest.mark.parametrize(("right", "count"), [(0, 10), (1, 10), (50, 100), (95, 100), (100, 100)])
def test_the_interval_is_wilsons(right: int, count: int) -> None:
    assert wilson(right, count) == pytest.approx(by_the_equation(right, count), abs=1e-9)
    low, high = Score(right, count).interval
    assert 0 <= low < high <= 1


def test_no_error_in_100_trials_is_not_certainty() -> None:
    assert Score(100, 100).interval == pytest.approx((0.963, 1.0), abs=5e-4)


def sequences(task: Passkey, size: int) -> list[str]:
    return [text.decode(row) for row in task.batch(0, "test", 0, size).tokens.tolist()]


def test_a_sequence_is_a_prompt_and_its_answer() -> None:
    task = Passkey(length=FRAME + 100)
    batch = task.batch(0, "test", 0, 200)
    depths, keys = Counter(), set()
    for sequence, marks in zip(sequences(task, 200), batch.scored.tolist(), strict=True):
        key = key_in(sequence)
        before, after = (len(sequence.split("\n")[line]) for line in (1, 3))
        assert sequence == f"{published(key, before, after)} {key}"
        assert before + after == 100
        assert marks == [False] * (len(sequence) - 5) + [True] * 5
        depths[before // 20] += 1
        keys.add(key)
    assert len(keys) > 195
    assert min(depths[part] for part in range(5)) > 15


def test_a_short_sequence_has_the_key_s_line_and_the_question_alone() -> None:
    task = Passkey(length=SHORT_FRAME + 100, short=True)
    batch = task.batch(0, "test", 0, 50)
    for sequence, marks in zip(sequences(task, 50), batch.scored.tolist(), strict=True):
        before, line, after, _ = sequence.split("\n")
        key = line.removeprefix("key ").removesuffix(".")
        assert sequence == f"{before}\nkey {key}.\n{after}\nkey {key}"
        assert len(before) + len(after) == 100
        assert "The grass is green. The sky is blue. ".startswith(before[:30])
        assert marks == [False] * (len(sequence) - 5) + [True] * 5
    with pytest.raises(UsageError, match=f"an int of at least {SHORT_FRAME}, the bytes without"):
        Passkey(length=SHORT_FRAME - 1, short=True)


def test_the_streams_stay_what_they_were() -> None:
    """Other data under an old seed would silently disagree with every stored result."""
    rows = Passkey(length=300).batch(0, "train", 0, 2).tokens.tolist()
    drawn = [text.decode(row).split("\n") for row in rows]
    assert [(lines[-1][-5:], len(lines[1])) for lines in drawn] == [("21328", 23), ("80262", 39)]
    asked = trials(text.encode, [300], depths=[0.5], count=3)
    assert [one.key for one in asked] == ["97539", "30274", "78957"]


def test_the_shortest_sequence_has_no_garbage() -> None:
    assert {key_in(one) for one in sequences(Passkey(length=FRAME), 3)}
    assert len(sequences(Passkey(length=FRAME), 1)[0]) == FRAME == 253


def test_the_default_is_the_shortest_prompt_of_longlora() -> None:
    assert Passkey().length == len(published("71432", 1000, 2072)) + len(" 71432")
    longest = Passkey().test_sets()["length x8"].task.max_length - FRAME
    assert longest == pytest.approx(29_696, rel=0.15)


def test_the_example_ends_a_sequence() -> None:
    line, marks = re.search(r"^(.+)\n([ ^]+\^)$", Passkey.__doc__ or "", re.MULTILINE).groups()  # type: ignore[union-attr]
    tokens = [text.BYTES.index(word) for word in line.split()]
    assert published("71432", 9, 9).endswith(text.decode(tokens[:-6]))
    scored = [place >= len(tokens) - 5 for place in range(len(tokens))]
    assert dedent(f"{line}\n{marks}") == Passkey().show(tokens, scored)


@pytest.mark.parametrize("value", [FRAME - 1, 300.0, True, "300"])
def test_bad_settings_are_the_callers_mistake(value: object) -> None:
    with pytest.raises(UsageError, match=r"^setting 'length' of the passkey task: expected an int"):
        build("passkey", length=value)


def test_the_vocabulary_is_that_of_text() -> None:
    assert Passkey().vocab == build("text").vocab
    encoded: Sequence[int] = Passkey(length=300).batch(0, "train", 0, 1).tokens[0].tolist()
    assert text.encode(text.decode(encoded)) == encoded
