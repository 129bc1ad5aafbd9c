"""Counting programs against an interpreter, and their distribution against the exact one."""

import re
from collections import Counter, defaultdict
from math import sqrt
from textwrap import dedent

import pytest
import torch

from milepost.errors import UsageError
from milepost.tasks import build
from milepost.tasks.counting import Counting

STATEMENT = re.compile(r"(?P<reset>[a-z]) = 0 ; |(?P<increment>[a-z]) \+\+; |(?P<other>pass;) ")
UNTRIMMED = 10**6


def run(text):
    """Interpret a whole program: its statements, the states before each, and what it prints."""
    state, statements, states, position = {}, [], [], 0
    while not text.startswith("print ", position):
        match = STATEMENT.match(text, position)
        assert match, f"no statement at {text[position:]!r}"
        states.append(dict(state))
        statements.append(match[0].strip())
        if match["reset"]:
            state[match["reset"]] = 0
        if match["increment"]:
            state[match["increment"]] += 1
        position = match.end()
    _, variable = text[position:].split()
    return statements, states, variable, str(state[variable])


def programs(task, size, seed=0):
    """The programs of a batch as text up to what is asked for, and the answers given."""
    batch = task.batch(seed, "test", 0, size)
    for tokens, scored in zip(batch.tokens.tolist(), batch.scored.tolist(), strict=True):
        assert scored.count(True) == 1
        end = scored.index(True)
        words = [task.vocab[token] for token in tokens]
        assert "<pad>" not in words[: end + 1]
        assert set(words[end + 1 :]) <= {"<pad>"}
        yield " ".join(words[:end]), words[end]


def distribution(variables, pass_weight, most, merge=False):
    """The exact law of (statements, answer), or of the answer alone when merged.

    Every statement's draw is repeated until it can be done, which is to say that the weights of
    those that can be done are scaled to one.
    """
    names = "abc"[:variables]
    law = defaultdict(float)
    for count in range(3, most + 1):
        paths = {((), ()): 1.0}
        for _ in range(count):
            longer = defaultdict(float)
            for (statements, items), probability in paths.items():
                state = dict(items)
                weights = {("pass;", items): pass_weight}
                for name in names:
                    after = tuple(sorted((state | {name: 0}).items()))
                    weights[f"{name} = 0 ;", after] = 1 / variables
                for name, value in items:
                    if value < 10:
                        after = tuple(sorted((state | {name: value + 1}).items()))
                        weights[f"{name} ++;", after] = 7 / len(items)
                total = sum(weights.values())
                for (statement, after), weight in weights.items():
                    path = () if merge else (*statements, statement)
                    longer[path, after] += probability * weight / total
            paths = longer
        for (statements, items), probability in paths.items():
            for name, value in items:
                question = () if merge else (f"print {name}",)
                law[(*statements, *question), str(value)] += probability / len(items)
    whole = sum(law.values())  # less than the number of counts: programs without a set variable
    return {outcome: probability / whole for outcome, probability in law.items()}


def by_length(law):
    """The law, or the counts, of the number of statements alone."""
    totals = Counter()
    for (statements, _), share in law.items():
        totals[len(statements)] += share
    return totals


def assert_drawn_from(law, counts):
    """Pearson's chi-squared, within six standard deviations of its mean."""
    total = sum(counts.values())
    assert set(counts) <= set(law)
    statistic = sum((counts[one] - total * p) ** 2 / (total * p) for one, p in law.items())
    freedom = len(law) - 1
    assert statistic < freedom + 6 * sqrt(2 * freedom)


def assert_binomial(successes, trials, probability):
    """Within five standard deviations: a true generator fails once in 1.7 million."""
    deviation = abs(successes - trials * probability)
    assert deviation <= 5 * sqrt(trials * probability * (1 - probability))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"variables": 3},
        {"variables": 5, "pass_weight": 10},
        {"max_steps": 3},
        {"variables": 26, "max_steps": 40, "pass_weight": 1},
        {"max_steps": 3, "pass_weight": 10**18},
    ],
)
def test_the_answer_is_what_an_interpreter_prints(settings):
    task = Counting(trim=UNTRIMMED, **settings)
    for text, answer in programs(task, 32):
        statements, _, _, printed = run(text)
        assert answer == printed
        assert int(answer) <= 10
        assert 3 <= len(statements) <= task.max_steps


def test_short_programs_follow_the_exact_law():
    task = Counting(variables=2, max_steps=4, pass_weight=3, trim=UNTRIMMED)
    drawn = Counter()
    for text, answer in programs(task, 20_000):
        statements, _, variable, _ = run(text)
        drawn[(*statements, f"print {variable}"), answer] += 1
    law = distribution(2, 3, 4)
    assert_drawn_from(law, drawn)
    assert_drawn_from(by_length(law), by_length(drawn))


@pytest.mark.parametrize(("variables", "pass_weight", "most"), [(1, 1, 60), (2, 1, 50)])
def test_answers_follow_the_exact_law_where_increments_run_into_the_limit(
    variables, pass_weight, most
):
    task = Counting(variables, max_steps=most, pass_weight=pass_weight, trim=UNTRIMMED)
    batch = task.batch(0, "test", 0, 20_000)
    drawn = Counter(((), task.vocab[token]) for token in batch.tokens[batch.scored].tolist())
    law = distribution(variables, pass_weight, most, merge=True)
    assert law[(), "10"] > 0.05
    assert_drawn_from(law, drawn)


@pytest.mark.parametrize("pass_weight", [10, 50, 100])
def test_statements_have_the_papers_weights_while_all_can_be_done(pass_weight):
    drawn = Counter()
    for text, _ in programs(Counting(pass_weight=pass_weight, trim=UNTRIMMED), 64):
        statements, states, _, _ = run(text)
        drawn.update(
            statement
            for statement, state in zip(statements, states, strict=True)
            if state and max(state.values()) < 10
        )
    assert set(drawn) == {"a = 0 ;", "a ++;", "pass;"}
    for statement, weight in [("a = 0 ;", 1), ("a ++;", 7), ("pass;", pass_weight)]:
        assert_binomial(drawn[statement], drawn.total(), weight / (8 + pass_weight))


def test_any_set_variable_is_as_likely_to_be_asked_for():
    task = Counting(variables=3, max_steps=60, pass_weight=20, trim=UNTRIMMED)
    two_set, lower_asked = 0, 0
    for text, _ in programs(task, 1500):
        _, _, variable, _ = run(text)
        known = sorted(set(re.findall(r"([abc]) =", text)))
        assert variable in known
        two_set += len(known) == 2
        lower_asked += len(known) == 2 and variable == known[0]
    assert two_set > 300
    assert_binomial(lower_asked, two_set, 1 / 2)


def test_trimming_keeps_the_end():
    whole = list(programs(Counting(variables=3, trim=UNTRIMMED), 64))
    trimmed = list(programs(Counting(variables=3), 64))
    cut = 0
    for (long, answer), (short, same) in zip(whole, trimmed, strict=True):
        assert answer == same
        assert short.split() == long.split()[-511:]
        cut += short != long
    assert_binomial(cut, 64, 0.14)


@pytest.mark.parametrize(("max_steps", "trim", "longest"), [(3, 512, 15), (512, 512, 512)])
def test_a_batch_is_as_wide_as_its_longest_sequence(max_steps, trim, longest):
    task = Counting(max_steps=max_steps, trim=trim)
    assert task.max_length == longest
    batch = task.batch(0, "train", 0, 64)
    lengths = batch.scored.long().argmax(1) + 1
    assert batch.tokens.shape == (64, lengths.max())
    assert torch.equal((batch.tokens != 0).sum(1), lengths)


def test_a_batch_of_one_holds_no_padding():
    batch = Counting().batch(0, "train", 3, 1)
    assert batch.scored[0, -1]
    assert (batch.tokens != 0).all()


def test_the_example_is_a_program_with_its_answer_marked():
    line, marks = re.search(r"^(.+)\n([ ^]+\^)$", Counting.__doc__, re.MULTILINE).groups()
    text, answer = line.strip().rsplit(" ", 1)
    assert run(text)[-1] == answer
    words, task = line.split(), build("counting")
    scored = [False] * (len(words) - 1) + [True]
    assert dedent(f"{line}\n{marks}") == task.show([task.vocab.index(w) for w in words], scored)


def test_the_paper_is_the_default():
    assert build("counting") == Counting(variables=1, max_steps=512, pass_weight=50, trim=512)
    numbers = {str(value) for value in range(11)}
    words = {"<pad>", "=", ";", "++;", "pass;", "print"}
    assert set(build("counting", variables=3).vocab) == words | numbers | {"a", "b", "c"}


def test_test_sets_are_the_papers_weights_then_longer_contexts():
    sets = Counting(variables=3).test_sets()
    settings = {
        title: (one.task.max_steps, one.task.pass_weight, one.task.trim)
        for title, one in sets.items()
    }
    assert settings == {
        "in": (512, 50, 512),
        "pass x2": (512, 100, 512),
        "pass /5": (512, 10, 512),
        "length x2": (1024, 50, 1024),
        "length x4": (2048, 50, 2048),
    }
    assert {one.task.variables for one in sets.values()} == {3}


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("variables", 0),
        ("variables", 27),
        ("variables", 1.0),
        ("max_steps", 2),
        ("max_steps", "64"),
        ("pass_weight", 0),
        ("pass_weight", 0.5),
        ("trim", 6),
        ("trim", None),
    ],
)
def test_bad_settings_are_the_callers_mistake(setting, value):
    with pytest.raises(UsageError, match=rf"^setting '{setting}' of the counting") as error:
        build("counting", **{setting: value})
    default = getattr(Counting(), setting)
    assert f"got {value!r}; leave it out for {default}" in str(error.value)
