"""Settings: round trip, a hash that means equality, and mistakes that are named."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from milepost.errors import UsageError
from milepost.training.settings import Settings

Make = Callable[..., Settings]


def test_round_trip_through_json(make_settings: Make) -> None:
    settings = make_settings(betas=(0.9, 0.95), clip=None, train_sequences=10)
    again = Settings.from_dict(json.loads(json.dumps(settings.to_dict())))
    assert again == settings
    assert again.hash == settings.hash


def test_equal_settings_have_equal_hashes_however_they_are_written(make_settings: Make) -> None:
    one = make_settings(lr=1, clip=1, betas=[0, 0.5], model={"dim": 16, "layers": 1})
    other = make_settings(lr=1.0, clip=1.0, betas=(0.0, 0.5), model={"layers": 1, "dim": 16})
    assert one.hash == other.hash
    assert len(one.hash) == 16
    assert one.differences(other) == []


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"model": {"dim": 32}}, {"task_settings": {"length": 18}}]
)
def test_any_change_changes_the_hash_and_is_listed(
    change: dict[str, Any], make_settings: Make
) -> None:
    settings, changed = make_settings(), make_settings(**change)
    assert settings.hash != changed.hash
    (line,) = settings.differences(changed)
    (name,) = change
    assert line.startswith(f"{name} ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("steps", 1.5),
        ("batch", True),
        ("accumulate", "2"),
        ("evaluate_sequences", 0),
        ("warmup", -1),
        ("seed", -1),
        ("seed", 2**32),
        ("lr", -1e-3),
        ("lr", float("nan")),
        ("eps", "tiny"),
        ("betas", (0.9,)),
        ("betas", (0.9, 1.0)),
        ("betas", 0.9),
        ("clip", 0),
        ("train_sequences", 0),
        ("compile", 1),
        ("optimizer", "sgd"),
        ("schedule", "cosin"),
        ("precision", "fp16"),
        ("model", ["dim"]),
        ("task_settings", None),
        ("task_settings", {"length": float("nan")}),
        ("encoding_options", {"base": float("inf")}),
        ("model", {"dim": [1, {"deep": -float("inf")}]}),
        ("model", {"dim": object()}),
    ],
)
def test_a_bad_value_is_named(name: str, value: object, make_settings: Make) -> None:
    with pytest.raises(UsageError, match=rf"\b{name}\b"):
        make_settings(**{name: value})


@pytest.mark.parametrize("name", ["vocab_size", "encoding", "encoding_options"])
def test_what_follows_from_elsewhere_is_not_in_the_model(name: str, make_settings: Make) -> None:
    with pytest.raises(UsageError, match=f"{name} does not belong there"):
        make_settings(model={name: 1})


def test_unknown_keys_are_named_with_the_nearest(make_settings: Make) -> None:
    with pytest.raises(UsageError, match=r"unknown setting 'weight_decai'.*'weight_decay'"):
        Settings.from_dict({**make_settings().to_dict(), "weight_decai": 0.1})


def test_missing_keys_are_named(make_settings: Make) -> None:
    values = make_settings().to_dict()
    del values["lr"]
    with pytest.raises(UsageError, match="lr is missing"):
        Settings.from_dict(values)


def test_a_hash_that_results_are_named_after_stays() -> None:
    settings = Settings(
        task="flip-flop", encoding="rope", model={"dim": 8}, steps=1, batch=1, lr=0.1
    )
    assert settings.hash == "a4dbcd306fbf00da"
