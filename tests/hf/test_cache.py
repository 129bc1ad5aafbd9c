"""What a layer remembers beside keys and values goes wherever they go."""

import pytest
import torch
from transformers import DynamicCache, StaticCache

import milepost.hf.cache as module
from milepost.hf.cache import LayerMemory, MilepostDynamicLayer, MilepostStaticLayer

from .tiny import make, tokens

KINDS = pytest.mark.parametrize("kind", [DynamicCache, StaticCache])


def filled(
    kind: type, length: int = 6, **options: object
) -> tuple[object, dict[str, torch.Tensor]]:
    """A cache of one layer with three tokens' worth of everything, and what was put in."""
    config = make("llama", "fox", num_hidden_layers=1).config
    settings = {"max_cache_len": 20} if kind is StaticCache else {}
    cache = kind(config=config, **settings)
    torch.manual_seed(2)
    new = {
        "key": torch.randn(2, 2, length, 4),
        "value": torch.randn(2, 2, length, 8),
        "gate_keys": torch.randn(2, 2, length, 4),
    }
    gates = torch.randn(2, 4, length)
    LayerMemory(cache, 0).extend(new, {"decay": gates})
    return cache, {**new, "decay": gates.double().cumsum(2)}


def more(cache: object) -> dict[str, torch.Tensor]:
    """All that is remembered, after one more token of zeros."""
    rows = cache.layers[0].keys.shape[0]
    new = {
        "key": torch.zeros(rows, 2, 1, 4),
        "value": torch.zeros(rows, 2, 1, 8),
        "gate_keys": torch.zeros(rows, 2, 1, 4),
    }
    return LayerMemory(cache, 0).extend(new, {"decay": torch.zeros(rows, 4, 1)})


def check(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert torch.equal(found[name][:, :, :-1], tensor), name
        last = tensor[:, :, -1] if name == "decay" else torch.zeros_like(tensor[:, :, 0])
        assert torch.equal(found[name][:, :, -1], last), name


@KINDS
def test_all_of_it_is_appended(kind: type) -> None:
    cache, expected = filled(kind)
    check(more(cache), expected)
    assert cache.get_seq_length() == 7


@KINDS
def test_beams_are_reordered(kind: type) -> None:
    cache, expected = filled(kind)
    cache.reorder_cache(torch.tensor([1, 1]))
    check(more(cache), {name: tensor[[1, 1]] for name, tensor in expected.items()})


def test_the_end_is_cropped() -> None:
    cache, expected = filled(DynamicCache)
    cache.crop(-2)
    check(more(cache), {name: tensor[:, :, :4] for name, tensor in expected.items()})


def test_rows_are_repeated_and_selected() -> None:
    cache, expected = filled(DynamicCache)
    cache.batch_repeat_interleave(3)
    cache.batch_select_indices(torch.tensor([5, 0]))
    check(more(cache), {name: tensor[[1, 0]] for name, tensor in expected.items()})


@KINDS
def test_a_reset_cache_is_empty(kind: type) -> None:
    cache, _ = filled(kind)
    cache.reset()
    assert cache.get_seq_length() == 0
    _, expected = filled(DynamicCache, 3)
    new = {name: expected[name] for name in ("key", "value", "gate_keys")}
    gates = expected["decay"].diff(dim=2, prepend=torch.zeros(2, 4, 1, dtype=torch.float64))
    found = LayerMemory(cache, 0).extend(new, {"decay": gates})
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-12)


def test_it_is_sent_away_and_fetched() -> None:
    cache, expected = filled(DynamicCache)
    layer = cache.layers[0]
    layer.offload()
    assert {tensor.device.type for tensor in layer.extra.values()} == {"cpu"}
    layer.prefetch()
    check(more(cache), expected)


def test_a_static_layer_hands_out_views_of_one_memory() -> None:
    cache, _ = filled(StaticCache)
    layer = cache.layers[0]
    addresses = {name: tensor.data_ptr() for name, tensor in layer.extra.items()}
    found = more(cache)
    assert {name: found[name].data_ptr() for name in addresses} == addresses
    assert layer.extra["decay"].shape == (2, 4, 20)


def test_the_layers_are_known_by_the_name_in_the_config() -> None:
    config = make("llama", "rope").config
    assert all(type(one) is MilepostDynamicLayer for one in DynamicCache(config=config).layers)
    static = StaticCache(config=config, max_cache_len=4)
    assert all(type(one) is MilepostStaticLayer for one in static.layers)


@pytest.mark.parametrize("name", ["fox", "fox+rope"])
def test_a_step_sums_the_gates_of_its_own_token_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    summed = []
    original = module.running_sum

    def spy(new: torch.Tensor, before: torch.Tensor | None) -> torch.Tensor:
        summed.append(new.shape[2])
        return original(new, before)

    monkeypatch.setattr(module, "running_sum", spy)
    model, ids = make("llama", name), tokens(1, 9)
    model.generate(ids, max_new_tokens=4, do_sample=False, eos_token_id=None)
    assert summed == [9] * 3 + [1] * 9
