"""The attention layer: the parts of the FoX Pro block, each against its equation."""

import pytest
import torch

from milepost.attention import Attention, HeadNorm, TokenShift
from milepost.cache import Cache, LayerCache
from milepost.encoding import Host, Positions, build
from milepost.model import Config, Decoder
from milepost.presets import MODELS

HOST = Host(dim=16, layers=1, heads=4, key_heads=2, head_dim=4, max_length=32)


def test_head_norm_divides_by_the_root_mean_square_of_each_head():
    norm, x = HeadNorm(3, 5, 1e-5).double(), torch.randn(2, 3, 7, 5, dtype=torch.float64)
    with torch.no_grad():
        norm.weight.normal_()
    out = norm(x)
    for h in range(3):
        root = (x[:, h].pow(2).sum(-1, keepdim=True) / 5 + 1e-5).sqrt()
        torch.testing.assert_close(out[:, h], x[:, h] / root * norm.weight[h])


def test_token_shift_mixes_with_the_token_before():
    shift, x = TokenShift(16, 2), torch.randn(1, 5, 16)
    projected = torch.randn(1, 2, 5, 4)
    previous = LayerCache().previous("key", projected)
    out = shift(x, projected, previous)
    for g in range(2):
        for t in range(5):
            alpha = torch.sigmoid(shift.gate.weight[g] @ x[0, t])
            before = projected[0, g, t - 1] if t else torch.zeros(4)
            expected = alpha * before + (1 - alpha) * projected[0, g, t]
            torch.testing.assert_close(out[0, g, t], expected)


def test_plain_attention_is_its_equation():
    layer, x = Attention(HOST, bias=True).double(), torch.randn(2, 6, 16, dtype=torch.float64)
    out, _ = layer(x, build("none", HOST)[0], Positions(torch.arange(6), 0, 6), None, LayerCache())
    q, k, v = (f(x).unflatten(-1, (-1, 4)) for f in (layer.query, layer.key, layer.value))
    heads = []
    for h in range(4):
        logits = q[:, :, h] @ k[:, :, h // 2].mT / 2
        logits = logits + torch.full((6, 6), float("-inf"), dtype=x.dtype).triu(1)
        heads.append(logits.softmax(-1) @ v[:, :, h // 2])
    torch.testing.assert_close(out, layer.output(torch.cat(heads, -1)), rtol=0, atol=1e-12)


def test_output_norm_and_gate_come_before_the_last_projection():
    layer = Attention(HOST, bias=False, output_norm=True, output_gate=True).double()
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    call = (build("none", HOST)[0], Positions(torch.arange(6), 0, 6), None)
    out, _ = layer(x, *call, LayerCache())
    norm, gate, last = layer.output_norm, layer.output_gate, layer.output
    layer.output_norm, layer.output_gate, layer.output = None, None, torch.nn.Identity()
    heads, _ = layer(x, *call, LayerCache())
    normed = norm(heads.unflatten(-1, (4, 4)).transpose(1, 2)).transpose(1, 2).flatten(2)
    torch.testing.assert_close(out, last(normed * torch.sigmoid(gate(x))), rtol=0, atol=1e-12)


def pro(**settings):
    torch.manual_seed(0)
    pro_block = {
        key: MODELS["text/fox-pro-125m"][key]
        for key in ("mlp", "norm", "qk_norm", "kv_shift", "output_norm", "output_gate", "bias")
    }
    config = Config(
        vocab_size=9,
        dim=16,
        layers=2,
        heads=4,
        key_heads=2,
        encoding="fox",
        max_length=32,
        **pro_block,
        **settings,
    )
    model = Decoder(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


@pytest.fixture
def tokens():
    return torch.randint(9, (2, 16), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("parts", [[1] * 16, [5, 2, 9]], ids=["each", "chunks"])
def test_the_pro_block_decodes_across_chunk_borders(parts, tokens):
    """The token shift needs the last token of the call before, also when a call brings many."""
    model, cache = pro(), Cache()
    pieces = [model(piece, cache=cache) for piece in tokens.split(parts, dim=1)]
    torch.testing.assert_close(torch.cat(pieces, 1), model(tokens), rtol=0, atol=1e-12)


def test_the_pro_block_does_not_see_padding_or_the_document_before(tokens):
    model = pro()
    alone = model(tokens[:, 6:])
    padded = model(tokens, padding=torch.tensor([6, 6]))[:, 6:]
    torch.testing.assert_close(padded, alone, rtol=0, atol=1e-12)
    documents = (torch.arange(16) >= 6).long().expand(2, 16)
    packed = model(tokens, documents=documents)[:, 6:]
    torch.testing.assert_close(packed, alone, rtol=0, atol=1e-12)


def test_every_part_of_the_pro_block_gets_a_gradient(tokens):
    model = pro().train()
    model(tokens).square().mean().backward()
    for path, parameter in model.named_parameters():
        assert parameter.grad is not None, path
        assert parameter.grad.abs().max() > 0, path
