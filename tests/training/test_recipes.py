"""Recipes: tables that are indexed by distance end where training does."""

import pytest
import torch

from milepost import tasks
from milepost.training import recipes
from milepost.training.loop import build_model


@pytest.mark.parametrize("encoding", ["relative", "relative-capped", "cope+relative"])
def test_every_distance_of_a_table_is_trained(encoding: str) -> None:
    settings = recipes.settings("flip-flop", "mini", encoding)
    task = tasks.build(settings.task, **settings.task_settings)
    model = build_model(settings, task)
    with torch.no_grad():  # CoPE's and the output's zeros would hide gradients
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    model(task.batch(0, "train", 0, 4).inputs).square().sum().backward()
    (table,) = [
        parameter
        for name, parameter in model.named_parameters()
        if name.endswith("relative.table") or name == "encodings.0.table"
    ][:1]
    assert table.grad is not None
    assert (table.grad.abs().sum(-1) > 0).all()


def test_the_model_reaches_the_longest_test_sequence() -> None:
    settings = recipes.settings("flip-flop", "mini", "absolute")
    task = tasks.build(settings.task, **settings.task_settings)
    longest = max(test_set.task.max_length for test_set in task.test_sets().values())
    assert longest > task.max_length
    assert settings.model["max_length"] == longest


def test_what_is_given_replaces_the_recipe() -> None:
    settings = recipes.settings(
        "flip-flop", "mini", "yarn", steps=7, encoding_options={"original_length": 9}
    )
    assert settings.steps == 7
    assert settings.encoding_options["original_length"] == 9


@pytest.mark.parametrize("task", tasks.names())
@pytest.mark.parametrize("scale", recipes.SCALES)
def test_every_task_has_every_scale(task: str, scale: str) -> None:
    settings = recipes.settings(task, scale, "cope")
    assert settings.encoding_options["p_max"] >= 1
    assert set(recipes.test_sequences(task, scale)) == set(
        tasks.build(task, **settings.task_settings).test_sets()
    )
