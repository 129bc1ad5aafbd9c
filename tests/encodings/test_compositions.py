"""Encodings that hold another: each part does what it does alone."""

import pytest
import torch

from milepost.encoding import find, names, options
from milepost.model import Config, Decoder
from milepost.ops import cope_attention, cope_bias_attention


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


def silence(decoder, *parts):
    """Set the parameters of these names to zero."""
    with torch.no_grad():
        for path, parameter in decoder.named_parameters():
            if any(part in path for part in parts):
                parameter.zero_()


def renamed(decoder, pair, alone):
    """The weights of a pair, by the names that they have in a model with one part alone."""
    first, second = (part.replace("-", "_") for part in pair.split("+"))
    kept, dropped = (first, second) if alone.replace("-", "_") == first else (second, first)
    return {
        path.replace(f".{kept}.", "."): value
        for path, value in decoder.state_dict().items()
        if f".{dropped}." not in path
    }


def become(decoder, weights):
    """Take the weights; layers may share what others have one each of."""
    decoder.load_state_dict({path: weights[path] for path in decoder.state_dict()})


PAIRS = [name for name in names() if name.startswith("cope+")]
TOKEN_BASED = """absolute sinusoidal relative relative-capped rope rope-linear rope-ntk yarn xpos
randomized alibi t5 kerple fire"""


def test_cope_stands_beside_every_token_based_encoding():
    assert set(PAIRS) == {f"cope+{token}" for token in TOKEN_BASED.split()}


@pytest.mark.parametrize("pair", PAIRS)
def test_without_counts_the_token_based_one_is_left(pair, tokens):
    alone = pair.removeprefix("cope+")
    both, one = model(pair), model(alone)
    shake(both)
    silence(both, ".cope.table")
    become(one, renamed(both, pair, alone))
    torch.testing.assert_close(both(tokens), one(tokens), rtol=0, atol=1e-12)


NEUTRAL = {  # options and parameters with which a token-based encoding does nothing
    "cope+absolute": ({}, ["absolute.table"]),
    "cope+relative": ({}, ["relative.table"]),
    "cope+relative-capped": ({}, ["relative_capped.table"]),
    "cope+t5": ({}, ["t5.table"]),
    "cope+fire": ({}, ["fire.outer"]),
    "cope+rope-linear": ({"factor": 1e12}, []),  # no pair turns
}


@pytest.mark.parametrize("pair", NEUTRAL)
def test_without_places_cope_is_left(pair, tokens):
    given, silenced = NEUTRAL[pair]
    both, one = model(pair, given), model("cope")
    shake(both)
    silence(both, *silenced)
    become(one, renamed(both, pair, "cope"))
    torch.testing.assert_close(both(tokens), one(tokens), rtol=0, atol=1e-9)


@pytest.mark.parametrize("pair", ["cope+alibi", "cope+kerple", "cope+t5", "cope+fire"])
@pytest.mark.parametrize("gates", [{}, {"sep_keys": True}, {"val_gates": True}])
def test_a_bias_is_added_and_gates_do_not_see_it(pair, gates, tokens):
    """Weights are CoPE's times those of the bias alone, over what both have of the content."""
    decoder = model(pair, gates)
    shake(decoder)
    layer, D = decoder.encodings[0], 4
    x = torch.randn(2, 15, 16).double()
    q, k, v = torch.randn(3, 2, 4, 15, D).double()
    _, state = layer.begin(x, positions := decoder.positions(tokens, None, None, None))
    call = {"x": x, "positions": positions, "state": state}
    eye = torch.eye(15).double().expand(2, 4, 15, 15)

    def weights(part):
        operands = part.encode(q, k, v, **call)
        memory = dict(operands.memory)
        if gates.get("val_gates") and part is not layer.token:
            return gated_by(v, operands, memory | {"value": eye})
        return part.op(query=operands.query, **memory | {"value": eye}, **operands.params)

    def gated_by(v, operands, memory):
        op = cope_bias_attention if "bias" in operands.params else cope_attention
        return op(query=operands.query, **memory, **operands.params, gate_keys=v)

    both = weights(layer)
    product = weights(layer.contextual).log() + weights(layer.token).log()
    content = (q @ k.mT / D**0.5).masked_fill(~torch.ones(15, 15).tril().bool(), float("-inf"))
    expected = (product - content.nan_to_num(neginf=0)).softmax(-1)
    torch.testing.assert_close(both, expected, rtol=0, atol=1e-12)
    assert (both - weights(layer.contextual)).abs().max() > 1e-3


@pytest.mark.parametrize("pair", [pair for pair in PAIRS if find(pair).unrotated])
def test_tables_meet_the_unrotated_query(pair, tokens):
    layer = model(pair).encodings[0]
    q = torch.randn(2, 4, 15, 4).double()
    positions = model(pair).positions(tokens, None, None, None)
    _, state = layer.begin(torch.randn(2, 15, 16).double(), positions)
    operands = layer.encode(q, q, q, x=q, positions=positions, state=state)
    assert operands.params["position_query"] is q
    assert (operands.query - q).abs().max() > 0.1


def test_every_pair_whose_token_part_turns_queries_says_so():
    turned = {"rope", "rope-linear", "rope-ntk", "yarn", "xpos", "randomized"}
    assert {p.removeprefix("cope+") for p in PAIRS if find(p).unrotated} == turned


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


def test_stick_breaking_with_rope_that_does_not_turn_is_stick_breaking(tokens):
    both = model("stick-breaking+rope", {"remainder": "bias"})
    one = model("stick-breaking", {"remainder": "bias"})
    shake(both)
    become(one, renamed(both, "stick-breaking+rope", "stick-breaking"))
    assert (both(tokens) - one(tokens)).abs().max() > 1e-3
    for layer in both.encodings:
        layer.rope.frequencies = lambda device: torch.zeros(2, dtype=torch.float64)
    torch.testing.assert_close(both(tokens), one(tokens), rtol=0, atol=1e-12)


def test_fox_with_alibi_and_gates_open_is_alibi(tokens):
    both, one = model("fox+alibi", {"bias": 60.0}), model("alibi")
    shake(both, leave=["fox"])
    copy_shared_weights(both, one)
    torch.testing.assert_close(both(tokens), one(tokens), rtol=0, atol=1e-12)


def test_fox_with_alibi_is_one_gate_that_is_always_lower(tokens):
    """Gates with f · exp(−m): a bias on FoX's logits, by hand."""
    layer = model("fox+alibi").encodings[0]
    x, q = torch.randn(1, 6, 16).double(), torch.randn(1, 4, 6, 4).double()
    positions = model("fox+alibi").positions(tokens[:1, :6], None, None, None)
    both = layer.encode(q, q, q, x=x, positions=positions, state=None).sums["decay"]
    alone = layer.fox.encode(q, q, q, x=x, positions=positions, state=None).sums["decay"]
    for head, slope in enumerate((1 / 4, 1 / 16, 1 / 64, 1 / 256)):
        torch.testing.assert_close(both[:, head], alone[:, head] - slope, rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", [name for name in names() if "+" in name])
def test_a_composition_takes_the_options_of_both(name):
    first, second = name.split("+")
    assert options(name) == {**options(first), **options(second)}


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
