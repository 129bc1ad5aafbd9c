"""What is shown of a layer, against the papers' equations one pair at a time, in fp64."""

import math
from typing import Any

import pytest
import torch

from milepost import encoding
from milepost.encodings.tape import matrices
from milepost.look import Layer, shown, trace
from milepost.look.shown import NAMES

from .tiny import LENGTH, LOWER, VOCABULARY, drawn, every_encoding, make, pairs, subject

HEADS = 4


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def zeros() -> torch.Tensor:
    return torch.zeros(HEADS, LENGTH, LENGTH, dtype=torch.float64)


def for_heads(array: torch.Tensor) -> torch.Tensor:
    return array.repeat_interleave(HEADS // len(array), dim=0)


def products(query: torch.Tensor, keys: torch.Tensor, scale: float | None) -> torch.Tensor:
    """The logits of every pair."""
    found, keys = zeros(), for_heads(keys[0])
    for i in range(LENGTH):
        for j in range(LENGTH):
            found[:, i, j] = (query[0, :, i] * keys[:, j]).sum(-1)
    return found * (query.shape[-1] ** -0.5 if scale is None else scale)


def counting(layer: Layer, window: int | None) -> dict[str, torch.Tensor]:
    keys, query = layer["key"], layer["query"]
    scale = layer["scale"] if layer["gate_scale"] is None else layer["gate_scale"]
    if layer["gate_keys"] is not None:
        keys = layer["gate_keys"]
        query = query if layer["position_query"] is None else layer["position_query"]
    logits, gates, positions = products(query, keys, scale), zeros(), zeros()
    for i, j in pairs(layer, window):
        gates[:, i, j] = torch.sigmoid(logits[:, i, j])
    for i, j in pairs(layer, window):
        for k in range(j, i + 1):
            positions[:, i, j] += gates[:, i, k]
    largest = {"cope_alibi": math.inf, "cope_mlp": layer["max_position"]}.get(layer.op)
    if largest is None:
        largest = layer["table"].shape[-2] - 1
    return {"gates": gates, "positions": positions.clamp(max=largest)}


def forgetting(layer: Layer, window: int | None) -> dict[str, torch.Tensor]:
    summed = layer["decay"][0]
    kept = summed.clone()
    for t in range(1, LENGTH):
        kept[:, t] = summed[:, t] - summed[:, t - 1]
    kept = kept.exp()
    gates, positions = zeros(), zeros()
    for i, j in pairs(layer, window):
        gates[:, i, j] = 1 - kept[:, j]
        positions[:, i, j] = 1
        for k in range(j + 1, i + 1):
            positions[:, i, j] *= kept[:, k]
    return {"gates": gates, "positions": positions}


def breaking(layer: Layer, window: int | None) -> dict[str, torch.Tensor]:
    logits = products(layer["query"], layer["key"], layer["scale"])
    gates, positions, attention = zeros(), zeros(), zeros()
    left = torch.ones(HEADS, LENGTH, dtype=torch.float64)
    for i, j in sorted(pairs(layer, window), reverse=True):
        gates[:, i, j] = torch.sigmoid(logits[:, i, j])
        attention[:, i, j] = gates[:, i, j] * left[:, i]
        left[:, i] -= attention[:, i, j]
        positions[:, i, j] = left[:, i]
    return {"gates": gates, "positions": positions, "attention": attention}


def rotating(layer: Layer, window: int | None, first: Layer) -> dict[str, torch.Tensor]:
    if isinstance(layer.state, tuple):
        (cosines,), (sines,) = layer.state
        positions = zeros()
        for i, j in pairs(layer, window):
            turned = cosines[0, i] * cosines[0, j] + sines[0, i] * sines[0, j]
            lengths = (cosines[0, i] ** 2 + sines[0, i] ** 2).sum().sqrt()
            lengths = lengths * (cosines[0, j] ** 2 + sines[0, j] ** 2).sum().sqrt()
            positions[:, i, j] = turned.sum() / lengths
        return {"positions": positions}
    places, before = matrices(layer.state)[0], matrices(first.state)[0]
    gates, positions = zeros(), zeros()
    for i, j in pairs(layer, window):
        e, other, began = places[:, i], places[:, j], before[:, j]
        dims = (1, 2, 3)
        alike = (e * other).sum(dims) / ((e**2).sum(dims) * (other**2).sum(dims)).sqrt()
        moved = ((other - began) ** 2).sum(dims) / (began**2).sum(dims)
        positions[:, i, j] = for_heads(alike)
        gates[:, i, j] = for_heads(moved.sqrt().clamp(max=1))
    return {"gates": gates, "positions": positions}


def apart(layer: Layer, window: int | None) -> dict[str, torch.Tensor]:
    positions = zeros()
    for i, j in pairs(layer, window):
        positions[:, i, j] = i - j
    return {"positions": positions}


def expected(layer: Layer, first: Layer, window: int | None) -> dict[str, torch.Tensor]:
    if layer.op.startswith("cope"):
        return counting(layer, window)
    if layer.op == "forgetting":
        return forgetting(layer, window)
    if layer.op == "stick_breaking":
        return breaking(layer, window)
    return apart(layer, window) if layer.places is None else rotating(layer, window, first)


@every_encoding
@pytest.mark.parametrize("window", [None, 5])
def test_arrays_are_those_of_the_equations(
    name: str, options: dict[str, Any], window: int | None
) -> None:
    traced = trace(make(name, options, layers=2, window=window), drawn())
    for layer, arrays in zip(traced.layers, shown(traced), strict=True):
        equations = expected(layer, traced.layers[0], window)
        assert ("gates" in arrays) == ("gates" in equations)
        for array, values in equations.items():
            close(arrays[array].make(), values)


@every_encoding
def test_every_array_is_of_its_unit_and_0_where_nothing_is_seen(
    name: str, options: dict[str, Any]
) -> None:
    traced = trace(make(name, options, window=5), drawn())
    for layer, arrays in zip(traced.layers, shown(traced), strict=True):
        assert [*arrays] == [each for each in NAMES if each in arrays]
        assert {"positions", "attention"} <= arrays.keys()
        unseen = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
        unseen[tuple(torch.tensor([*pairs(layer, 5)]).T)] = False
        for about in arrays.values():
            found = about.make()
            low, high = {
                "share": (0, 1),
                "cosine": (-1, 1),
                "count": (0, math.inf if about.largest is None else about.largest),
                "tokens": (0, 4),
            }[about.unit]
            assert found.shape == (HEADS, LENGTH, LENGTH)
            assert not found[:, unseen].any()
            assert low - 1e-12 <= found.min()
            assert found.max() <= high + 1e-12


@every_encoding
def test_attention_takes_of_the_values_what_the_op_returned(
    name: str, options: dict[str, Any]
) -> None:
    traced = trace(make(name, options), drawn())
    for layer, arrays in zip(traced.layers, shown(traced), strict=True):
        close(arrays["attention"].make() @ for_heads(layer["value"][0]), layer.output)


@every_encoding
def test_alone_and_the_content_make_the_attention(name: str, options: dict[str, Any]) -> None:
    traced = trace(make(name, options), drawn())
    for layer, arrays in zip(traced.layers, shown(traced), strict=True):
        if "alone" not in arrays:
            assert layer.op in ("softmax", "stick_breaking")
            continue
        alone = arrays["alone"].make()
        assert torch.equal(alone.amax(-1), torch.ones(HEADS, LENGTH, dtype=alone.dtype))
        joint = alone * products(layer["query"], layer["key"], layer["scale"]).exp()
        close(joint / joint.sum(-1, keepdim=True), arrays["attention"].make())


@pytest.mark.parametrize("name", encoding.names())
def test_gates_are_of_the_encodings_that_have_some(name: str) -> None:
    arrays = shown(trace(make(name), drawn()))[0]
    having = name.startswith(("cope", "fox", "stick-breaking", "tape"))
    assert ("gates" in arrays) == having


def test_a_count_ends_where_the_table_does() -> None:
    def largest(name: str, **options: Any) -> float | None:
        return shown(trace(make(name, options), drawn()))[0]["positions"].largest

    assert largest("cope", p_max=3) == 3
    assert largest("cope-mlp", p_max=4) == 4
    assert largest("cope-alibi") is None
    assert largest("fox") is None


def test_alibi_alone_fades_by_each_heads_slope() -> None:
    alone = shown(trace(make("alibi"), drawn()))[0]["alone"].make()
    for h in range(HEADS):
        slope = 2 ** (-8 * (h + 1) / HEADS)
        for i, j in LOWER.nonzero().tolist():
            assert alone[h, i, j].item() == pytest.approx(math.exp(-slope * (i - j)))


def test_rope_is_alike_by_the_cosines_of_its_angles() -> None:
    (arrays, *_) = shown(trace(make("rope"), drawn()))
    distance = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).double()
    alike = (distance.cos() + (distance / 100).cos()) / 2  # base 10⁴ at head_dim 4
    close(arrays["positions"].make(), (alike * LOWER).expand(HEADS, -1, -1))


def test_places_are_where_they_began_in_the_first_layer_and_move_after_it() -> None:
    first, *others = shown(trace(make("tape"), drawn()))
    assert not first["gates"].make().any()
    for arrays in others:
        assert arrays["gates"].make().diagonal(dim1=1, dim2=2).all()


def test_a_place_that_moved_further_than_its_length_has_moved_by_1() -> None:
    model = make("tape")
    with torch.no_grad():
        for parameter in model.encodings[0].parameters():
            parameter.mul_(10)
    traced = trace(model, drawn())
    places, before = (layer.places for layer in traced.layers[1::-1])
    assert ((places - before).norm(dim=-1) > before.norm(dim=-1)).any()
    assert shown(traced)[1]["gates"].make().max() == 1


@pytest.mark.parametrize("name", ["cope", "cope-mlp"])
def test_layers_may_have_different_arrays(name: str) -> None:
    first, *others = shown(trace(make(name, {"first_layer_only": True}), drawn()))
    assert [*first] == [*NAMES]
    assert first["positions"].unit == "count"
    for arrays in others:
        assert [*arrays] == ["positions", "attention"]
        assert arrays["positions"].unit == "tokens"


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("absolute", ["positions", "attention"]),
        ("rope", ["positions", "attention"]),
        ("tape", ["gates", "positions", "attention"]),
    ],
)
def test_hard_attention_is_of_one_key_for_each_query(name: str, names: list[str]) -> None:
    for arrays in shown(trace(make(name, hard_attention=True), drawn())):
        assert [*arrays] == names
        attention = arrays["attention"].make()
        assert torch.equal(attention.sum(-1), torch.ones(HEADS, LENGTH, dtype=attention.dtype))
        assert torch.equal(attention, attention.bool().double())


@pytest.mark.parametrize("name", ["alibi", "cope", "fox", "stick-breaking", "tape"])
def test_low_precision_is_shown_in_more(name: str) -> None:
    for arrays in shown(trace(make(name).bfloat16(), drawn())):
        assert {about.make().dtype for about in arrays.values()} == {torch.float32}


def test_a_distance_is_whole_in_any_precision() -> None:
    model = make("none", layers=1, max_length=400).bfloat16()
    (arrays,) = shown(trace(model, torch.randint(VOCABULARY, (400,))))
    assert torch.equal(arrays["positions"].make()[0, -1], torch.arange(399, -1, -1).float())


def test_nothing_is_computed_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = subject("cope").trace
    monkeypatch.setattr(Layer, "gates", property(lambda layer: layer.output[..., 0]))
    (arrays, *_) = shown(traced)
    assert torch.equal(arrays["gates"].make(), traced.layers[0].output[..., 0])
