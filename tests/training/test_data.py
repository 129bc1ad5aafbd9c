"""The data of a step: pure, and a finite set is all of it, again and again."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch

from milepost import tasks
from milepost.tasks.task import Batch
from milepost.training.data import CHUNK, TrainingData, sequences
from milepost.training.settings import Settings

Make = Callable[..., Settings]


def rows(batches: list[Batch]) -> list[tuple[int, ...]]:
    return [tuple(row.tolist()) for batch in batches for row in batch.tokens]


def data(settings: Settings) -> TrainingData:
    return TrainingData(settings, tasks.build(settings.task, **settings.task_settings))


def test_a_longer_list_begins_with_a_shorter() -> None:
    task = tasks.build("flip-flop", length=16)
    longer = rows(list(sequences(task, 0, "test", 2 * CHUNK + 5)))
    shorter = rows(list(sequences(task, 0, "test", CHUNK + 1)))
    assert len(longer) == 2 * CHUNK + 5
    assert shorter == longer[: CHUNK + 1]


def test_new_data_at_every_micro_batch_and_the_same_at_every_call(make_settings: Make) -> None:
    settings = make_settings(accumulate=2)
    steps = [rows(data(settings)(step)) for step in range(3)]
    assert [len(step) for step in steps] == [8, 8, 8]
    assert len({row for step in steps for row in step}) == 24
    assert rows(data(settings)(2)) == steps[2]


@pytest.mark.parametrize("accumulate", [1, 3])
def test_every_epoch_is_the_whole_set_in_another_order(
    accumulate: int, make_settings: Make
) -> None:
    # batches of 4 do not divide the 90 sequences: some span two epochs
    settings = make_settings(train_sequences=90, batch=4, accumulate=accumulate)
    feed = data(settings)
    seen = [row for step in range(90 // accumulate) for row in rows(feed(step))]
    epochs = [seen[first : first + 90] for first in range(0, 360, 90)]
    whole = Counter(rows(list(sequences(feed.task, settings.seed, "train", 90))))
    assert len(epochs) == 4
    assert all(Counter(epoch) == whole for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert rows(data(settings)(7)) == rows(feed(7))


def test_a_finite_set_of_sequences_of_many_lengths(make_settings: Make) -> None:
    settings = make_settings(
        task="counting",
        task_settings={"max_steps": 12, "pass_weight": 2},
        train_sequences=3 * CHUNK,
        batch=CHUNK,
    )
    task = tasks.build(settings.task, **settings.task_settings)
    drawn = list(sequences(task, settings.seed, "train", 3 * CHUNK))
    widths = {batch.tokens.shape[1] for batch in drawn}
    assert len(widths) > 1, "the chunks should differ in width, or nothing is padded"
    feed = data(settings)
    for batch in (feed(step)[0] for step in range(3)):
        assert batch.scored.sum(1).tolist() == [1] * CHUNK
        assert batch.scored[:, -1].any()
    answers = torch.cat([batch.tokens[batch.scored] for step in range(3) for batch in feed(step)])
    expected = torch.cat([batch.tokens[batch.scored] for batch in drawn])
    assert answers.sort().values.tolist() == expected.sort().values.tolist()
