"""The cache appends along time and remembers the newest token."""

import torch

from milepost.cache import Cache, LayerCache


def test_memory_is_appended_on_the_time_axis():
    layer = LayerCache()
    first, second = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 1, 5)
    gate = torch.randn(2, 3, 4)
    assert torch.equal(layer.extend({"key": first, "gate": gate})["key"], first)
    whole = layer.extend({"key": second, "gate": gate[:, :, :1]})
    assert torch.equal(whole["key"], torch.cat((first, second), 2))
    assert whole["gate"].shape == (2, 3, 5)


def test_what_is_handed_out_is_not_the_cache_itself():
    layer = LayerCache()
    handed = layer.extend({"key": torch.randn(1, 1, 2, 3)})
    handed["other"] = torch.zeros(1)
    assert set(layer.memory) == {"key"}


def test_previous_is_zero_at_first_and_the_last_token_afterwards():
    layer, x = LayerCache(), torch.randn(1, 2, 6, 3)
    before = torch.cat([layer.previous("key", part) for part in x.split([3, 1, 2], dim=2)], 2)
    assert not before[:, :, 0].any()
    assert torch.equal(before[:, :, 1:], x[:, :, :-1])


def test_an_empty_cache_holds_nothing():
    cache = Cache()
    assert cache.length == 0
    assert cache.batch is None
    assert not cache.layers[3].memory


def test_sums_run_on_over_calls_in_fp64():
    layer, gates = LayerCache(), torch.randn(2, 3, 7)
    for part in gates.split([4, 1, 2], dim=2):
        whole = layer.extend({}, {"decay": part})["decay"]
    assert whole.dtype == torch.float64
    torch.testing.assert_close(whole, gates.double().cumsum(2), rtol=0, atol=1e-12)


def test_a_sum_goes_on_from_its_end_alone():
    """Decoding adds a new token to the sum once, however many came before."""
    layer = LayerCache()
    layer.extend({}, {"decay": torch.ones(1, 1, 5)})
    layer.memory["decay"][..., -1] = 100.0
    assert layer.extend({}, {"decay": torch.ones(1, 1, 1)})["decay"][0, 0, -1] == 101
