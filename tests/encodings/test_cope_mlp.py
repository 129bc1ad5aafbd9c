"""CoPE with a network: the encoding's side of it (the mathematics is tested with the op)."""

import pytest
import torch

from milepost.encoding import Host, build
from milepost.encodings.none import NoEncoding
from milepost.errors import UsageError

HOST = Host(dim=16, layers=3, heads=4, key_heads=2, head_dim=4, max_length=32)


def test_its_kinks_start_inside_the_range_of_positions():
    torch.manual_seed(0)
    layer = build("cope-mlp", HOST, {"hidden": 500, "p_max": 20})[0]
    kink = (-layer.bias_in / layer.weight_in).detach()
    assert kink.min() >= 0
    assert kink.max() <= 20
    assert kink.std() > 4  # uniform on 0 … 20 has 5.8


def test_its_output_starts_at_zero():
    assert not build("cope-mlp", HOST)[0].weight_out.any()


def test_each_layer_has_its_own_network_or_only_the_first():
    assert len({id(layer) for layer in build("cope-mlp", HOST)}) == 3
    first, *rest = build("cope-mlp", HOST, {"first_layer_only": True})
    assert hasattr(first, "weight_in")
    assert all(type(layer) is NoEncoding for layer in rest)


@pytest.mark.parametrize("option", ["hidden", "p_max"])
def test_sizes_must_be_whole_numbers(option):
    with pytest.raises(UsageError, match=f"{option} must be a whole number above 0"):
        build("cope-mlp", HOST, {option: 0})
