"""Presets are found by name."""

import pytest

from milepost.errors import UsageError
from milepost.presets import MODELS, model


def test_a_preset_is_a_copy():
    settings = model("flip-flop/paper")
    settings["dim"] = 1
    assert MODELS["flip-flop/paper"]["dim"] == 256


def test_an_unknown_preset_brings_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'counting/paper'"):
        model("counting/papr")


def test_table_7_of_the_cope_paper_has_its_eight_sizes():
    sizes = {
        (MODELS[n]["dim"], MODELS[n]["layers"], MODELS[n]["heads"]) for n in MODELS if "d-" in n
    }
    assert sizes == {(d, n, h) for d in (128, 256) for n in (2, 4) for h in (2, 4)}
