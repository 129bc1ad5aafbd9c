"""The decoder: its settings, its shapes, its start, and what it refuses."""

import math

import pytest
import torch
from torch import nn

from milepost.cache import Cache
from milepost.errors import UsageError
from milepost.model import MLP, Config, Decoder
from milepost.presets import MODELS

SMALL = {"vocab_size": 11, "dim": 16, "layers": 2, "heads": 4, "max_length": 32}


def decoder(**settings):
    torch.manual_seed(0)
    return Decoder(Config(**{**SMALL, **settings})).eval()


@pytest.fixture
def tokens():
    return torch.randint(11, (3, 8), generator=torch.Generator().manual_seed(0))


def test_logits_have_a_row_for_each_token(tokens):
    assert decoder()(tokens).shape == (3, 8, 11)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("place", ["pre", "post"])
def test_a_block_is_its_equation(norm, place, tokens):
    model = decoder(norm=norm, norm_place=place, layers=1, encoding="none", dropout=0.3)
    block, x = model.blocks[0], model.embedding(tokens)
    positions = model.positions(tokens, None, None, None)

    def attend(y):
        return block.attention(y, model.encodings[0], positions, None, Cache().layers[0])[0]

    if place == "pre":
        x = x + attend(block.attention_norm(x))
        x = model.norm(x + block.mlp(block.mlp_norm(x)))
    else:
        x = block.attention_norm(x + attend(x))
        x = block.mlp_norm(x + block.mlp(x))
    expected = x @ model.embedding.weight.mT
    torch.testing.assert_close(model(tokens), expected)
    kinds = {type(m) for m in block.modules() if isinstance(m, nn.LayerNorm | nn.RMSNorm)}
    assert kinds == {nn.LayerNorm if norm == "layer" else nn.RMSNorm}


@pytest.mark.parametrize("kind", ["gelu", "relu", "swiglu", "geglu"])
def test_an_mlp_is_its_equation(kind):
    mlp, x = MLP(Config(**SMALL, mlp=kind, mlp_dim=24)), torch.randn(2, 16)
    act = {
        "gelu": lambda y: y * 0.5 * (1 + torch.erf(y / math.sqrt(2))),
        "relu": lambda y: y.clamp(min=0),
        "swiglu": lambda y: y * torch.sigmoid(y),
    }[kind.replace("geglu", "gelu")]
    up = x @ mlp.up.weight.mT + mlp.up.bias
    hidden = act(up) if mlp.gate is None else act(x @ mlp.gate.weight.mT + mlp.gate.bias) * up
    torch.testing.assert_close(mlp(x), hidden @ mlp.down.weight.mT + mlp.down.bias)


def test_tied_embeddings_are_one_matrix():
    tied, untied = decoder(), decoder(tied=False)
    assert tied.unembedding.weight is tied.embedding.weight
    assert untied.unembedding.weight is not untied.embedding.weight


def test_without_bias_there_is_none():
    names = [n for n, _ in decoder(bias=False).named_parameters()]
    assert not [n for n in names if n.endswith("bias")]


def test_dropout_acts_in_training_only(tokens):
    model = decoder(dropout=0.5)
    assert torch.equal(model(tokens), model(tokens))
    model.train()
    assert not torch.equal(model(tokens), model(tokens))


def test_gpt2_initialisation():
    model = decoder(dim=256, layers=8, init_std=0.02)
    block = model.blocks[3]
    assert block.mlp.up.weight.std().item() == pytest.approx(0.02, rel=0.02)
    for end in (block.mlp.down, block.attention.output):
        assert end.weight.std().item() == pytest.approx(0.02 / 4, rel=0.02)
        assert not end.bias.any()


def test_grouped_keys_are_smaller():
    block = decoder(key_heads=2).blocks[0].attention
    assert block.key.weight.shape == block.value.weight.shape == (8, 16)
    assert block.query.weight.shape == (16, 16)


def test_head_dim_may_differ_from_dim_over_heads(tokens):
    model = decoder(head_dim=6, heads=3)
    assert model.blocks[0].attention.query.weight.shape == (18, 16)
    assert model(tokens).shape == (3, 8, 11)


def test_a_dictionary_makes_the_same_configuration():
    config = Config(**SMALL, encoding="cope", encoding_options={"p_max": 9})
    assert Config.from_dict(config.to_dict()) == config
    with pytest.raises(UsageError, match="unknown model setting 'layer': did you mean 'layers'"):
        Config.from_dict({**config.to_dict(), "layer": 2})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dim": 15}, "heads must divide dim, got dim=15 and heads=4"),
        ({"key_heads": 3}, "key_heads must divide heads, got key_heads=3 and heads=4"),
        ({"layers": 0}, "layers must be a whole number above 0, got 0"),
        ({"heads": 2.0}, "heads must be a whole number above 0, got 2.0"),
        ({"window": 0}, "window must be a whole number above 0, got 0"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
        ({"mlp": "swigloo"}, "did you mean 'swiglu'"),
        ({"norm": "layernorm"}, "did you mean 'layer'"),
        ({"norm_place": "before"}, "unknown norm_place 'before'"),
        ({"encoding": "rop"}, "did you mean 'rope'"),
        ({"encoding": None}, "encoding must be a name, as 'rope', got None"),
        ({"encoding_options": "p_max"}, "encoding_options must map names to values"),
        ({"layers": True}, "layers must be a whole number above 0, got True"),
        ({"mlp": 3}, "unknown mlp '3': valid: geglu"),
        ({"tied": "no"}, "tied must be True or False, got 'no'"),
        ({"kv_shift": 1}, "kv_shift must be True or False, got 1"),
        ({"dropout": "0.1"}, "dropout must be a finite number, got '0.1'"),
        ({"dropout": False}, "dropout must be a finite number, got False"),
        ({"init_std": 0}, "init_std must be above 0, or None for PyTorch's defaults, got 0"),
        ({"init_std": math.nan}, "init_std must be a finite number, got nan"),
        ({"backend": "tritn"}, "unknown backend 'tritn': did you mean 'triton'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        decoder(**settings)


def test_settings_that_lack_some_are_refused():
    with pytest.raises(UsageError, match="got none for dim, heads: add them"):
        Config.from_dict({"vocab_size": 11, "layers": 2})


def test_bad_calls_are_refused(tokens, monkeypatch):
    model = decoder()
    with pytest.raises(UsageError, match="tokens must be a tensor, got list"):
        model(tokens.tolist())
    with pytest.raises(UsageError, match=r"tokens must be int32 or int64 .* got torch.float32"):
        model(tokens.float())
    with pytest.raises(UsageError, match=r"tokens must have shape \(batch, time\), got \(8,\)"):
        model(tokens[0])
    with pytest.raises(UsageError, match="below vocab_size = 11, got ids from 12 to 22"):
        model(torch.tensor([[12, 22]]))
    with pytest.raises(UsageError, match=r"at least 0 .* got ids from -1 to 3"):
        model(torch.tensor([[-1, 3]]))
    with pytest.raises(
        UsageError, match=r"padding must have shape \(batch,\) = \(3,\), got \(2,\)"
    ):
        model(tokens, padding=torch.zeros(2, dtype=torch.int64))
    with pytest.raises(UsageError, match="padding must be a tensor, got list"):
        model(tokens, padding=[0, 1, 2])
    with pytest.raises(UsageError, match=r"padding must be int32 or int64 .* got torch.bool"):
        model(tokens, padding=torch.zeros(3, dtype=torch.bool))
    with pytest.raises(UsageError, match=r"padding must not be negative, got \[0, -1, 2\]"):
        model(tokens, padding=torch.tensor([0, -1, 2]))
    with pytest.raises(UsageError, match=r"documents must be int32 or int64 .* got torch.float32"):
        model(tokens, documents=torch.zeros(3, 8))
    with pytest.raises(UsageError, match="documents must have the shape of tokens"):
        model(tokens, documents=torch.zeros(3, 7, dtype=torch.int64))
    with pytest.raises(UsageError, match="not both"):
        model(tokens, padding=torch.zeros(3, dtype=torch.int64), documents=torch.zeros_like(tokens))
    monkeypatch.delenv(
        "TRITON_INTERPRET", raising=False
    )  # in which the tests' kernels take tensors of the CPU
    with pytest.raises(UsageError, match="triton refused: needs cuda tensors, got cpu"):
        decoder(backend="triton")(tokens)


def test_a_cache_is_of_one_batch(tokens):
    model, cache = decoder(), Cache()
    model(tokens, cache=cache)
    with pytest.raises(UsageError, match="as many rows as the cache, 3, got 2"):
        model(tokens[:2], cache=cache)
    assert cache.length == 8
    assert model(tokens[:, :1], cache=cache).shape == (3, 1, 11)


def test_documents_may_have_any_numbers(tokens):
    model, documents = decoder(), torch.tensor([[0] * 3 + [1] * 5]).expand(3, 8)
    assert torch.equal(model(tokens, documents=documents), model(tokens, documents=-7 * documents))


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_preset_builds(name):
    with torch.device("meta"):
        model = Decoder(Config(vocab_size=1000, **MODELS[name]))
    assert len(model.blocks) == MODELS[name]["layers"]


@pytest.mark.parametrize(
    ("name", "vocabulary", "millions"),
    [
        ("text/cope-124m", 50257, 123.7),  # CoPE, Table 5: relative and CoPE models
        ("text/tape-155m", 32000, 162.4),  # TAPE, Table 3: RoPE has 154.89 · 2^20
        ("text/llama-2-7b", 32000, 6738.4),  # Llama 2
    ],
)
def test_presets_have_the_papers_numbers_of_parameters(name, vocabulary, millions):
    with torch.device("meta"):
        model = Decoder(Config(vocab_size=vocabulary, **{**MODELS[name], "encoding": "rope"}))
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.06)


def test_hard_attention_is_the_limit_of_sharp_attention(tokens):
    hard = decoder(encoding="absolute", hard_attention=True).double()
    sharp = decoder(encoding="absolute").double()
    with torch.no_grad():
        for block in sharp.blocks:
            for parameter in block.attention.query.parameters():
                parameter.mul_(1e5)
    torch.testing.assert_close(hard(tokens), sharp(tokens), rtol=0, atol=1e-10)


def test_hard_attention_learns_where_to_attend(tokens):
    model = decoder(encoding="absolute", hard_attention=True)
    model(tokens).logsumexp(-1).sum().backward()
    for block in model.blocks:
        assert block.attention.query.weight.grad.abs().max() > 1e-6
        assert block.attention.key.weight.grad.abs().max() > 1e-6


@pytest.mark.parametrize("name", ["cope", "alibi", "stick-breaking", "shifted-sparse"])
def test_hard_attention_is_refused_where_the_op_is_another(name):
    with pytest.raises(UsageError, match=r"hard_attention takes the one value.*leave hard_atten"):
        decoder(encoding=name, hard_attention=True)
