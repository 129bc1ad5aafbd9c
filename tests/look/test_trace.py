"""Traces against the ops that they explain, and against the papers' equations written out."""

import math
from typing import Any

import pytest
import torch

from milepost import encoding
from milepost.attention import Call
from milepost.encodings.tape import matrices
from milepost.errors import UsageError
from milepost.look import Layer, trace
from milepost.look.trace import layer_of

from .tiny import LENGTH, LOWER, VOCABULARY, drawn, every_encoding, make


@pytest.fixture
def tokens() -> torch.Tensor:
    return drawn()


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@every_encoding
@pytest.mark.parametrize("window", [None, 5])
def test_the_weights_are_those_of_the_op(
    name: str, options: dict[str, Any], window: int | None, tokens: torch.Tensor
) -> None:
    model = make(name, options, window=window)
    layers = trace(model, tokens).layers
    assert len(layers) == 3
    for layer in layers:
        value = layer["value"][0].repeat_interleave(2, dim=0)
        close(layer.weights @ value, layer.output)
        assert not layer.weights[:, ~LOWER].any()
        if layer.op != "stick_breaking":
            close(layer.logits.softmax(-1), layer.weights)
        if window is not None:
            assert not layer.weights[:, LOWER.tril(-window)].any()


@pytest.mark.parametrize("name", ["absolute", "rope", "tape"])
def test_hard_attention_has_the_weights_of_one_key(name: str, tokens: torch.Tensor) -> None:
    for layer in trace(make(name, hard_attention=True), tokens).layers:
        assert layer.op == "hard"
        value = layer["value"][0].repeat_interleave(2, dim=0)
        assert torch.equal(layer.weights @ value, layer.output)
        assert torch.equal(layer.weights.amax(-1), layer.weights.sum(-1))
        assert (layer.weights.argmax(-1) == layer.logits.argmax(-1)).all()


@pytest.mark.parametrize("name", encoding.names())
def test_the_output_is_what_the_model_goes_on_with(name: str, tokens: torch.Tensor) -> None:
    model = make(name)
    heads: list[torch.Tensor] = []
    model.blocks[-1].attention.output.register_forward_pre_hook(
        lambda _, given: heads.append(given[0][0])
    )
    layer = trace(model, tokens).layers[-1]
    close(heads[0], layer.output.transpose(0, 1).flatten(1))


@every_encoding
def test_arrays_are_there_where_they_mean_something(
    name: str, options: dict[str, Any], tokens: torch.Tensor
) -> None:
    counted = name.startswith("cope")
    with_table = counted and name != "cope-alibi"
    # the encodings of all but the first layer may be another's
    layer = trace(make(name, options), tokens).layers[0]
    for array in ("gates", "counts", "positions"):
        assert (getattr(layer, array) is not None) == counted, array
    for array in ("saturated", "saturation", "key_saturation"):
        assert (getattr(layer, array) is not None) == with_table, array
    for array in ("decay", "forget_gates"):
        assert (getattr(layer, array) is not None) == name.startswith("fox"), array
    assert (layer.remainder is not None) == name.startswith("stick-breaking")
    for array in ("gates", "positions", "decay", "position_weights", "weights", "logits"):
        found = getattr(layer, array)
        if found is not None:
            assert found.shape == (4, LENGTH, LENGTH), array
            assert found[:, LOWER].isfinite().all() or layer.op == "stick_breaking", array
            hidden = -math.inf if array in ("decay", "logits") else 0
            assert (found[:, ~LOWER] == hidden).all(), array


@every_encoding
def test_position_has_a_term_where_one_is_made(
    name: str, options: dict[str, Any], tokens: torch.Tensor
) -> None:
    for layer in trace(make(name, options), tokens).layers:
        assert layer.has_term == (layer.term is not None)


@every_encoding
def test_attention_by_position_alone_has_a_largest_of_one(
    name: str, options: dict[str, Any], tokens: torch.Tensor
) -> None:
    for layer in trace(make(name, options), tokens).layers:
        weights = layer.position_weights
        if weights is None:
            assert layer.op in ("softmax", "stick_breaking")
            continue
        assert torch.equal(weights.amax(-1), torch.ones(4, LENGTH, dtype=weights.dtype))
        content = layer.content(layer["key"])
        joint = (content + weights.log()).masked_fill(~LOWER, -math.inf)
        close(joint.softmax(-1), layer.weights)


def equations(layer: Layer, gate_keys: str, bounded: float | None) -> tuple[Any, Any]:
    """Gates and positions by Eqs. 3 and 4, one pair at a time."""
    query, key = layer.operands["query"][0], layer.operands[gate_keys][0]
    gates = torch.zeros(4, LENGTH, LENGTH, dtype=torch.float64)
    for h in range(4):
        for i in range(LENGTH):
            for j in range(i + 1):
                gates[h, i, j] = torch.sigmoid(query[h, i] @ key[h // 2, j] / 2)
    positions = torch.zeros_like(gates)
    for i in range(LENGTH):
        for j in range(i + 1):
            positions[:, i, j] = gates[:, i, j : i + 1].sum(-1)
    return gates, positions if bounded is None else positions.clamp(max=bounded)


@pytest.mark.parametrize(
    ("name", "options", "gate_keys", "p_max"),
    [
        ("cope", {"p_max": 3}, "key", 3),
        ("cope-alibi", {}, "key", None),
        ("cope-mlp", {"p_max": 4}, "key", 4),
        ("cope", {"sep_keys": True, "p_max": 3}, "gate_keys", 3),
        ("cope", {"val_gates": True, "p_max": 3}, "value", 3),
    ],
)
def test_gates_and_positions_are_those_of_the_equations(
    name: str,
    options: dict[str, Any],
    gate_keys: str,
    p_max: float | None,
    tokens: torch.Tensor,
) -> None:
    for layer in trace(make(name, options), tokens).layers:
        gates, positions = equations(layer, gate_keys, p_max)
        close(layer.gates, gates)
        close(layer.positions, positions)
        if p_max is None:
            continue
        saturated = (positions >= p_max) & LOWER
        assert saturated.any()
        assert not saturated[:, LOWER].all()
        close(layer.saturation, saturated.sum((1, 2)).double() / LOWER.sum())
        for j in range(LENGTH):
            close(layer.key_saturation[:, j], saturated[:, j:, j].double().mean(1))


def test_cope_beside_rope_counts_rotated_logits_and_places_unrotated_queries(
    tokens: torch.Tensor,
) -> None:
    model = make("cope+rope")
    layer = trace(model, tokens).layers[0]
    _, positions = equations(layer, "key", 64)
    close(layer.positions, positions)
    block = model.blocks[0]
    unrotated = block.attention.query(block.attention_norm(model.embedding(tokens)))
    unrotated = unrotated.unflatten(-1, (4, 4)).transpose(0, 1)
    z = unrotated @ model.encodings[0].cope.table.T
    low, high = positions.floor().long(), positions.ceil().long()
    part = positions - low
    placed = (1 - part) * z.gather(2, low) + part * z.gather(2, high)
    close(layer.term[:, LOWER], placed[:, LOWER])


def test_the_decay_is_the_sum_of_the_log_gates_between(tokens: torch.Tensor) -> None:
    model = make("fox")
    x = model.blocks[0].attention_norm(model.embedding(tokens))
    f = torch.sigmoid(model.encodings[0].gate(x)).T
    layer = trace(model, tokens).layers[0]
    close(layer.forget_gates, f)
    for i, j in ((0, 0), (7, 7), (9, 4), (17, 0)):
        close(layer.decay[:, i, j], f[:, j + 1 : i + 1].log().sum(1))


def test_the_stick_is_the_weights_and_the_remainder(tokens: torch.Tensor) -> None:
    for layer in trace(make("stick-breaking"), tokens).layers:
        taken = layer.weights
        close(taken.sum(-1) + layer.remainder, torch.ones(4, LENGTH, dtype=torch.float64))
        assert not taken[:, 0].any()
        share = torch.sigmoid(layer.logits[:, 9, 6])
        rest = (1 - torch.sigmoid(layer.logits[:, 9, 7:9])).prod(-1)
        close(taken[:, 9, 6], share * rest)


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_tape_brings_its_positions(variant: str, tokens: torch.Tensor) -> None:
    layers = trace(make("tape", {"variant": variant}), tokens).layers
    products = [layer.place_products for layer in layers]
    for layer, product in zip(layers, products, strict=True):
        e = matrices(layer.state)[0]  # (G, S, 2, 2, D/2)
        traces = torch.einsum("gslrf,gtlrf->gst", e, e)
        # the released variant keeps one of two rows, of the same length
        close(product, traces if variant == "paper" else traces / 2)
    assert (products[1] - products[0]).abs().max() > 1e-3


def test_rope_has_the_same_places_in_all_layers(tokens: torch.Tensor) -> None:
    distance = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).double()
    expected = distance.cos() + (distance / 100).cos()  # base 10⁴ at head_dim 4
    for layer in trace(make("rope"), tokens).layers:
        close(layer.place_products, expected[None])
    assert trace(make("alibi"), tokens).layers[0].places is None
    assert trace(make("xpos"), tokens).layers[0].places is None


def test_a_trace_changes_nothing(tokens: torch.Tensor) -> None:
    model = make("cope")
    before = model(tokens[None])
    first = trace(model, tokens)
    assert torch.equal(model(tokens[None]), before)
    assert all(module.observer is None for module in model.encodings)
    again = trace(model, tokens[None])
    for a, b in zip(first.layers, again.layers, strict=True):
        assert torch.equal(a.weights, b.weights)


def test_low_precision_is_looked_at_in_more(tokens: torch.Tensor) -> None:
    layer = trace(make("fox").bfloat16(), tokens).layers[0]
    assert layer.weights.dtype == layer.decay.dtype == torch.float32
    torch.testing.assert_close(layer.weights.sum(-1), torch.ones(4, LENGTH))


@pytest.mark.parametrize("name", ["rope", "tape", "yarn", "alibi", "fox", "cope"])
def test_what_sees_no_place_does_not_see_a_shift(name: str, tokens: torch.Tensor) -> None:
    model = make(name)
    for here, there in zip(
        trace(model, tokens).layers, trace(model, tokens, shift=3).layers, strict=True
    ):
        close(here.weights, there.weights)


@pytest.mark.parametrize("name", ["absolute", "sinusoidal", "fire"])
def test_what_sees_places_sees_a_shift(name: str, tokens: torch.Tensor) -> None:
    options = {"threshold": 4.0} if name == "fire" else {}
    here, there = (trace(make(name, options), tokens, shift=n).layers[0] for n in (0, 3))
    assert (here.weights - there.weights).abs().max() > 1e-3


def test_a_shift_is_the_number_of_the_first_token(tokens: torch.Tensor) -> None:
    model = make("absolute")
    block = model.blocks[0]
    x = model.embedding(tokens) + model.encodings[0].table[3 : 3 + LENGTH]
    query = block.attention.query(block.attention_norm(x)).unflatten(-1, (4, 4)).transpose(0, 1)
    close(trace(model, tokens, shift=3).layers[0]["query"][0], query)


def test_a_shift_past_a_table_is_refused(tokens: torch.Tensor) -> None:
    with pytest.raises(UsageError, match=f"at position {2 * LENGTH + 2}"):
        trace(make("absolute"), tokens, shift=LENGTH + 3)
    with pytest.raises(UsageError, match="shift must be a whole number above 0, got -1"):
        trace(make("rope"), tokens, shift=-1)
    with pytest.raises(UsageError, match="give shift, or padding or documents"):
        make("rope")(tokens[None], shift=1, padding=torch.tensor([2]))


def test_what_cannot_be_traced_is_refused(tokens: torch.Tensor) -> None:
    model = make("rope")
    with pytest.raises(UsageError, match=r"tokens must be one row, .* got \(2, 18\)"):
        trace(model, tokens.expand(2, -1))
    with pytest.raises(UsageError, match="tokens must be int32 or int64"):
        trace(model, tokens.double())
    with pytest.raises(UsageError, match=r"evaluation mode, got training: call eval\(\)"):
        trace(model.train(), tokens)
    with pytest.raises(UsageError, match="no layer of which does"):
        trace(torch.nn.Embedding(VOCABULARY, 3).eval(), tokens)


def test_an_op_of_another_kind_is_refused() -> None:
    class Odd(encoding.Encoding):
        def op(self, *, query: torch.Tensor, backend: Any, **_: Any) -> torch.Tensor:
            return query

    odd = Odd(encoding.Host(dim=4, layers=1, heads=1, key_heads=1, head_dim=4, max_length=4))
    query = torch.randn(1, 1, 3, 4)
    with pytest.raises(UsageError, match=r"must call one op of milepost.ops, got \[\] of Odd"):
        layer_of(Call(odd, odd.op, {"query": query}, query, None))


def test_models_for_transformers_can_be_traced(tokens: torch.Tensor) -> None:
    pytest.importorskip("transformers")
    from milepost.hf.convert import from_decoder

    model = make("cope", layers=2).float()
    other = from_decoder(model).double()
    layers = trace(other, tokens).layers
    for ours, theirs in zip(trace(model.double(), tokens).layers, layers, strict=True):
        close(ours.positions, theirs.positions)
        close(ours.weights, theirs.weights)
