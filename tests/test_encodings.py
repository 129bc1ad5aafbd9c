"""The shared examination: what every position encoding must do, whatever its idea.

It finds encodings by itself: a new file in `milepost/encodings/` is examined with no other line
changed, and so is each set of options in its `variants`. Everything runs in fp64 on a small model
with grouped key heads, whose weights are shaken so that nothing stays at a zero it started from.
"""

import copy
import re
from typing import Any

import pytest
import torch

from milepost import encoding
from milepost.cache import Cache
from milepost.errors import UsageError
from milepost.model import Config, Decoder

VOCABULARY = 13
LENGTH = 18


def cases() -> list[Any]:
    found = []
    for name in encoding.names():
        for options in ({}, *encoding.find(name).variants):
            label = " ".join([name, *(f"{k}={v}" for k, v in options.items())])
            found.append(pytest.param(name, options, id=label))
    return found


every_encoding = pytest.mark.parametrize(("name", "options"), cases())


def make(name: str, options: dict[str, Any], seed: int = 0, **settings: Any) -> Decoder:
    torch.manual_seed(seed)
    config = Config(
        **{
            "vocab_size": VOCABULARY,
            "dim": 16,
            "layers": 3,
            "heads": 4,
            "key_heads": 2,
            "max_length": 2 * LENGTH,
            "encoding": name,
            "encoding_options": options,
            **settings,
        }
    )
    model = Decoder(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def draw(batch: int = 2, length: int = LENGTH) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(VOCABULARY, (batch, length), generator=generator)


@every_encoding
def test_a_token_sees_only_the_past(name: str, options: dict[str, Any]) -> None:
    model, tokens, at = make(name, options), draw(), 9
    changed = tokens.clone()
    changed[:, at] = (tokens[:, at] + 1) % VOCABULARY
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :at], after[:, :at], rtol=0, atol=1e-12)
    assert (before[:, at + 1 :] - after[:, at + 1 :]).abs().amax(-1).min() > 1e-9


@every_encoding
@pytest.mark.parametrize("parts", [[18], [1] * 18, [7, 5, 1, 1, 4]], ids=["one", "each", "chunks"])
def test_cached_decoding_is_the_full_forward(
    name: str, options: dict[str, Any], parts: list[int]
) -> None:
    model, tokens, cache = make(name, options), draw(), Cache()
    pieces = [model(piece, cache=cache) for piece in tokens.split(parts, dim=1)]
    torch.testing.assert_close(torch.cat(pieces, 1), model(tokens), rtol=0, atol=1e-12)
    assert cache.length == LENGTH


@every_encoding
def test_the_cache_holds_what_the_encoding_says(name: str, options: dict[str, Any]) -> None:
    model, cache = make(name, options), Cache()
    model(draw(), cache=cache)
    kept = {field for layer in cache.layers.values() for field in layer.memory}
    said = set(encoding.find(name).cached)
    assert kept == said if not options else kept >= said
    assert all(
        tensor.shape[2] == LENGTH
        for layer in cache.layers.values()
        for tensor in layer.memory.values()
    )


@every_encoding
def test_padding_changes_nothing(name: str, options: dict[str, Any]) -> None:
    model, tokens, padding = make(name, options), draw(), torch.tensor([0, 7])
    alone = model(tokens[1:, 7:])
    padded = model(tokens, padding=padding)
    torch.testing.assert_close(padded[1:, 7:], alone, rtol=0, atol=1e-10)
    other = tokens.clone()
    other[1, :7] = (tokens[1, :7] + 3) % VOCABULARY
    torch.testing.assert_close(model(other, padding=padding)[1:, 7:], alone, rtol=0, atol=1e-10)
    cache = Cache()
    pieces = [model(p, cache=cache, padding=padding) for p in tokens.split([10, 1, 7], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, 1)[1:, 7:], alone, rtol=0, atol=1e-10)


@every_encoding
def test_packed_documents_are_as_alone(name: str, options: dict[str, Any]) -> None:
    model, tokens = make(name, options), draw()
    documents = torch.tensor([[0] * 5 + [1] * 13, [4] * 11 + [2] * 7])
    packed = model(tokens, documents=documents)
    for row, cut in ((0, 5), (1, 11)):
        for part in (slice(0, cut), slice(cut, None)):
            alone = model(tokens[row : row + 1, part])
            torch.testing.assert_close(packed[row : row + 1, part], alone, rtol=0, atol=1e-10)


@every_encoding
def test_a_window_hides_what_is_older(name: str, options: dict[str, Any]) -> None:
    model, tokens = make(name, options, layers=1, window=4), draw()
    changed = tokens.clone()
    changed[:, 5] = (tokens[:, 5] + 1) % VOCABULARY
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, 9:], after[:, 9:], rtol=0, atol=1e-12)
    assert (before[:, 6:9] - after[:, 6:9]).abs().amax(-1).min() > 1e-9


@every_encoding
def test_every_parameter_gets_a_gradient(name: str, options: dict[str, Any]) -> None:
    model, tokens = make(name, options).train(), draw(length=2 * LENGTH)
    loss = torch.nn.functional.cross_entropy(
        model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
    )
    loss.backward()
    for path, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{path} gets no gradient"
        assert parameter.grad.isfinite().all(), f"{path} gets a gradient that is not finite"
        assert parameter.grad.abs().max() > 0, f"{path} gets a gradient of zero"


@every_encoding
def test_saved_and_loaded_it_is_the_same(name: str, options: dict[str, Any]) -> None:
    model, other, tokens = make(name, options), make(name, options, seed=5), draw()
    assert not torch.equal(model(tokens), other(tokens))
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(tokens), other(tokens))


@every_encoding
def test_it_runs_in_low_precision(name: str, options: dict[str, Any]) -> None:
    """Its error is of the size of what rounding the weights alone does, the rest being in fp64.

    In bf16 a block rounds 8 weights and twice as many activations, all to the same precision.
    Independent errors add up in squares, to √(1 + 2) times the weights' share; an encoding rounds
    more, and 4 times is as if a weight had 15 activations. In fp32 sums are made in the same
    precision, the longest (in the MLP) of 64 terms: √64 times as much at worst.
    """
    model, tokens = make(name, options), draw()
    exact = model(tokens)

    def error(logits: torch.Tensor) -> torch.Tensor:
        return (logits.double() - exact).square().mean().sqrt()

    single = copy.deepcopy(model).float()
    with torch.autocast("cpu", torch.bfloat16):
        mixed = single(tokens)
    for low, factor in ((single, 4 * 8), (copy.deepcopy(model).bfloat16(), 4)):
        logits = low(tokens)
        assert logits.dtype == low.embedding.weight.dtype
        rounding = error(low.double()(tokens))
        assert error(logits) < factor * rounding
    assert error(mixed) < 4 * rounding


@every_encoding
def test_rows_of_a_batch_do_not_mix(name: str, options: dict[str, Any]) -> None:
    model, tokens = make(name, options), draw(batch=3)
    together = model(tokens)
    for row in range(3):
        alone = model(tokens[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", encoding.names())
def test_it_compiles_without_a_break(name: str) -> None:
    model, tokens = make(name, {}, layers=2), draw()
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(tokens), model(tokens), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", encoding.names())
def test_it_describes_itself(name: str) -> None:
    facts = encoding.describe(name)
    assert facts["name"] == name
    assert "arXiv" in facts["paper"]
    assert 0 < len(facts["changes"]) < 80
    assert facts["parameters"] >= 0
    assert {"key", "value"} <= set(facts["cached"])


@pytest.mark.parametrize("name", encoding.names())
def test_a_misspelt_option_is_named(name: str) -> None:
    with pytest.raises(UsageError, match="frobnicate"):
        make(name, {"frobnicate": 1})


def kinds_of_mistake() -> list[Any]:
    """Every option of every encoding with values that are not of its kind."""
    wrong = {bool: ["no", 1], str: [3, None], int: [True, 2.5, "4"], float: [False, "abc", None]}
    return [
        pytest.param(name, option, value, id=f"{name} {option}={value!r}")
        for name in encoding.names()
        for option, default in encoding.options(name).items()
        for value in wrong.get(type(default), ["abc", True, float("nan")])
    ]


@pytest.mark.parametrize(("name", "option", "value"), kinds_of_mistake())
def test_an_option_of_another_kind_is_refused(name: str, option: str, value: Any) -> None:
    kind = "(True or False|a string|a whole number|a finite number( or None)?)"
    default = re.escape(repr(encoding.options(name)[option]))
    message = f"^{option} must be {kind}, got {value!r}: the default is {default}$"
    host = encoding.Host(dim=16, layers=2, heads=4, key_heads=2, head_dim=4, max_length=8)
    with pytest.raises(UsageError, match=message):
        encoding.build(name, host, {option: value})


def test_a_number_may_be_whole_where_the_default_is_not_and_must_be_finite() -> None:
    host = encoding.Host(dim=16, layers=1, heads=4, key_heads=2, head_dim=4, max_length=8)
    encoding.build("rope", host, {"base": 500})
    with pytest.raises(UsageError, match="base must be a finite number, got inf"):
        encoding.build("rope", host, {"base": float("inf")})


@pytest.mark.parametrize("name", encoding.names())
def test_layers_have_objects_of_their_own_where_it_says_so(name: str) -> None:
    host = encoding.Host(dim=16, layers=3, heads=4, key_heads=2, head_dim=4, max_length=8)
    kind = encoding.find(name)
    if kind.per_layer:
        assert len(set(encoding.build(name, host))) == 3
    elif "stack" not in vars(kind):
        assert len(set(encoding.build(name, host))) == 1


def test_an_encoding_picks_its_own_options() -> None:
    given = {"base": 7.0, "p_max": 3}
    assert encoding.find("rope").own(given) == {"base": 7.0}
    assert encoding.find("cope").own(given) == {"p_max": 3}


def test_the_list_is_the_one_that_the_project_promises() -> None:
    promised = """none absolute sinusoidal relative relative-capped rope rope-linear rope-ntk yarn
    xpos randomized alibi t5 kerple fire cope cope-mlp cope-alibi fox stick-breaking tape fox+rope
    fox+alibi stick-breaking+rope cope+absolute cope+sinusoidal cope+relative cope+relative-capped
    cope+rope cope+rope-linear cope+rope-ntk cope+yarn cope+xpos cope+randomized cope+alibi cope+t5
    cope+kerple cope+fire"""
    assert set(promised.split()) <= set(encoding.names())


def test_an_unknown_name_brings_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown encoding 'coep': did you mean 'cope'"):
        encoding.find("coep")
