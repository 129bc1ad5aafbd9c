"""Presets are found by name."""

import pytest
import torch

from milepost.errors import UsageError
from milepost.model import Config, Decoder
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


def test_the_adding_model_of_the_tape_paper_has_about_120m_parameters():
    with torch.device("meta"):
        decoder = Decoder(Config(vocab_size=14, **model("addition/paper")))
    assert sum(p.numel() for p in decoder.parameters()) == pytest.approx(120e6, rel=0.03)
