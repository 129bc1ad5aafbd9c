"""CoPE with slopes: which slopes, and which sign."""

import pytest
import torch

from milepost.encoding import Host, Positions, build
from milepost.errors import UsageError

HOST = Host(dim=16, layers=2, heads=4, key_heads=4, head_dim=4, max_length=32)


def slopes(**options):
    layer = build("cope-alibi", HOST, options)[0]
    q = torch.randn(1, 4, 3, 4)
    positions = Positions(torch.arange(3), 0, 3)
    operands = layer.encode(q, q, q, x=q, positions=positions, state=None)
    return operands.params["slopes"]


def test_alibi_slopes_are_those_of_its_paper():
    torch.testing.assert_close(slopes(), -torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256]))


@pytest.mark.parametrize("first", [1, 1 / 4, 1 / 16])
def test_halving_slopes_are_the_three_sets_of_table_7(first):
    expected = -first * torch.tensor([1, 1 / 2, 1 / 4, 1 / 8])
    torch.testing.assert_close(slopes(slopes="halving", first=first), expected)


def test_equation_10_to_the_letter_adds():
    torch.testing.assert_close(slopes(sign=1), -slopes())


def test_learned_slopes_start_at_zero_one_for_each_head_and_layer():
    layers = build("cope-alibi", HOST, {"slopes": "learned"})
    assert len({id(layer.learned) for layer in layers}) == 2
    assert layers[0].learned.shape == (4,)
    assert not layers[0].learned.any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slopes": "halfing"}, "did you mean 'halving'"),
        ({"sign": 0}, "sign must be -1"),
        ({"slopes": "halving", "first": 0}, "first must be above 0"),
        ({"first": 2}, "first is the first slope of slopes='halving', got slopes='alibi'"),
        ({"slopes": "learned", "sign": 1}, "sign is of fixed slopes"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        build("cope-alibi", HOST, options)
