"""Encodings that hold another: each part does what it does alone."""

import pytest
import torch

from milepost.encoding import options
from milepost.model import Config, Decoder


def model(name, given=None, seed=0):
    torch.manual_seed(seed)
    settings = {"vocab_size": 9, "dim": 16, "layers": 2, "heads": 4, "max_length": 24}
    return Decoder(Config(**settings, encoding=name, encoding_options=given or {})).double().eval()


def shake(decoder, *, leave=()):
    torch.manual_seed(1)
    with torch.no_grad():
        for path, parameter in decoder.named_parameters():
            if not any(part in path for part in leave):
                parameter.add_(0.3 * torch.randn_like(parameter))


def copy_shared_weights(source, target):
    own = target.state_dict()
    target.load_state_dict({k: source.state_dict().get(k, own[k]) for k in own})


@pytest.fixture
def tokens():
    return torch.randint(9, (2, 15), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("pair", "alone", "silenced"),
    [
        ("cope+rope", "rope", "table"),
        ("cope+relative", "none", "table"),
    ],
)
def test_with_its_own_table_at_zero_the_other_is_left(pair, alone, silenced, tokens):
    both, one = model(pair), model(alone)
    shake(both, leave=[silenced])
    if alone == "none":
        with torch.no_grad():
            for path, parameter in both.named_parameters():
                if silenced in path:
                    parameter.zero_()
    copy_shared_weights(both, one)
    torch.testing.assert_close(both(tokens), one(tokens), rtol=0, atol=1e-12)


def test_fox_with_gates_open_is_rope(tokens):
    both, one = model("fox+rope", {"bias": 60.0}), model("rope")
    shake(both, leave=["fox"])
    copy_shared_weights(both, one)
    torch.testing.assert_close(both(tokens), one(tokens), rtol=0, atol=1e-12)


@pytest.mark.parametrize("gates", [{}, {"sep_keys": True}, {"val_gates": True}])
def test_cope_with_rope_does_not_depend_on_absolute_positions(gates, tokens):
    """Table and gate keys meet the unrotated query; the rotated one would break this."""
    decoder = model("cope+rope", gates)
    shake(decoder)
    rope = decoder.encodings[0].rope
    begin = rope.begin

    def shifted(x, positions):
        return begin(x, positions.renumbered(positions.index + 1000))

    here = decoder(tokens)
    rope.begin = shifted
    torch.testing.assert_close(decoder(tokens), here, rtol=0, atol=1e-9)


def test_a_composition_takes_the_options_of_both():
    assert set(options("cope+rope")) == set(options("cope")) | set(options("rope"))
    assert set(options("cope+relative")) == set(options("cope")) | set(options("relative"))
    assert set(options("fox+rope")) == set(options("fox")) | set(options("rope"))


def test_layers_after_the_first_may_have_the_other_part_alone():
    decoder = model("cope+rope", {"first_layer_only": True})
    kinds = [type(decoder.encodings[i]).__name__ for i in decoder.layer_encoding]
    assert kinds == ["CopeWithRope", "Rope"]


@pytest.mark.parametrize(("convention", "scale"), [("equations", 1.0), ("listing", 0.5)])
def test_the_relative_term_is_scaled_as_the_content_is(convention, scale, tokens):
    decoder = model("cope+relative", {"convention": convention})
    layer = decoder.encodings[0]
    q = torch.randn(2, 4, 15, 4).double()
    positions = decoder.positions(tokens, None, None, None)
    operands = layer.encode(q, q, q, x=q, positions=positions, state=None)
    expected = scale * layer.relative.table[:15]
    torch.testing.assert_close(operands.params["relative_table"], expected)
