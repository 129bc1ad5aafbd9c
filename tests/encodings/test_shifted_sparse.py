"""Shifted sparse attention: groups in training, RoPE in evaluation, and no look ahead."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from milepost.cache import Cache
from milepost.encoding import Host
from milepost.encodings.shifted_sparse import ShiftedSparse, group_starts
from milepost.errors import UsageError
from milepost.model import Config, Decoder

CPU = torch.device("cpu")
HEADS_AND_KEY_HEADS = [(4, 4), (4, 2), (4, 1), (6, 3), (6, 2), (5, 5), (5, 1), (12, 4), (12, 3)]


def make(encoding: str = "shifted-sparse", seed: int = 0, **settings: Any) -> Decoder:
    torch.manual_seed(seed)
    size = {"vocab_size": 11, "dim": 16, "layers": 2, "heads": 4, "key_heads": 2}
    return Decoder(Config(**{**size, "encoding": encoding, **settings})).double()


def draw(length: int, batch: int = 2) -> Tensor:
    return torch.randint(11, (batch, length), generator=torch.Generator().manual_seed(3))


def same_group(i: int, j: int, length: int, groups: int, shifted: bool) -> bool:
    """By the cuts between groups: i and j are together where none lies between them."""
    size = math.ceil(length / groups)
    cuts = list(range(size // 2 if shifted else 0, length, size))
    return not any(min(i, j) < cut <= max(i, j) for cut in cuts)


def dense(
    query: Tensor, key: Tensor, value: Tensor, groups: int, oldest: Tensor | None = None
) -> Tensor:
    """Attention written out with a mask for each head, in fp64."""
    B, H, S, D = query.shape
    shared = H // key.shape[1]
    out = torch.zeros(B, H, S, value.shape[-1], dtype=torch.float64)
    for b in range(B):
        for h in range(H):
            logits = query[b, h] @ key[b, h // shared].T / math.sqrt(D)
            for i in range(S):
                for j in range(S):
                    hidden = oldest is not None and j < oldest[b, i]
                    together = same_group(i, j, S, groups, shifted=h >= H // 2)
                    if j > i or hidden or not together:
                        logits[i, j] = -math.inf
            out[b, h] = logits.softmax(-1) @ value[b, h // shared]
    return out


def operands(H: int, G: int, S: int) -> dict[str, Tensor]:
    query = torch.randn(2, H, S, 4, dtype=torch.float64)
    key, value = torch.randn(2, 2, G, S, 4, dtype=torch.float64)
    return {"query": query, "key": key, "value": value}


def encoding_of(H: int, G: int, groups: int = 4) -> ShiftedSparse:
    host = Host(dim=4 * H, layers=1, heads=H, key_heads=G, head_dim=4, max_length=64)
    return ShiftedSparse(host, groups=groups)


def test_groups_are_a_quarter_and_half_of_the_heads_are_half_a_group_later() -> None:
    assert group_starts(8, 4, False, CPU).tolist() == [0, 0, 2, 2, 4, 4, 6, 6]
    assert group_starts(8, 4, True, CPU).tolist() == [0, 1, 1, 3, 3, 5, 5, 7]
    assert group_starts(10, 4, False, CPU).tolist() == [0, 0, 0, 3, 3, 3, 6, 6, 6, 9]
    assert group_starts(10, 4, True, CPU).tolist() == [0, 1, 1, 1, 4, 4, 4, 7, 7, 7]
    assert group_starts(1, 4, True, CPU).tolist() == [0]


@pytest.mark.parametrize(("H", "G"), HEADS_AND_KEY_HEADS)
@pytest.mark.parametrize(("S", "groups"), [(16, 4), (13, 4), (9, 2), (3, 4)])
def test_training_is_attention_within_groups(H: int, G: int, S: int, groups: int) -> None:
    given = operands(H, G, S)
    out = encoding_of(H, G, groups).train().op(**given, start=None, backend="reference")
    torch.testing.assert_close(out, dense(**given, groups=groups), rtol=0, atol=1e-12)


def test_what_start_hides_stays_hidden() -> None:
    given = operands(4, 2, 16)
    documents = torch.tensor([[0] * 5 + [5] * 11, [0] * 10 + [10] * 6])
    out = encoding_of(4, 2).train().op(**given, start=documents, backend="reference")
    torch.testing.assert_close(out, dense(**given, groups=4, oldest=documents), rtol=0, atol=1e-12)


def test_evaluation_is_rope() -> None:
    sparse, rope, tokens = make().eval(), make("rope").eval(), draw(24)
    sparse.load_state_dict(rope.state_dict())
    assert torch.equal(sparse(tokens), rope(tokens))
    assert (sparse.train()(tokens) - rope.train()(tokens)).abs().max() > 1e-3


@pytest.mark.parametrize("length", [16, 18, 19])
def test_in_training_too_no_token_sees_a_later_one(length: int) -> None:
    """The published roll fails this: its first half group sees the last."""
    model, tokens = make().train(), draw(length)
    before = model(tokens)
    for at in (1, length // 2, length - 1):
        changed = tokens.clone()
        changed[:, at] = (tokens[:, at] + 1) % 11
        after = model(changed)
        assert torch.equal(after[:, :at], before[:, :at])
        assert (after[:, at] - before[:, at]).abs().max() > 1e-6


def test_one_layer_does_not_reach_past_the_groups_and_the_next_does() -> None:
    """Of 16 tokens in groups of 4, the groups of token 11 begin at 8 and 10, token 8's at 6."""
    tokens = draw(16)
    for layers, reached in ((1, 8), (2, 6)):
        model = make(layers=layers).train()
        before = model(tokens)[:, 11]
        for at, seen in ((reached, True), (reached - 1, False)):
            changed = tokens.clone()
            changed[:, at] = (tokens[:, at] + 1) % 11
            moved = (model(changed)[:, 11] - before).abs().max().item()
            assert (moved > 1e-9) == seen, (layers, at)


def test_packed_documents_and_padding_do_not_mix_in_training() -> None:
    model, tokens = make().train(), draw(18)
    documents = torch.tensor([[0] * 5 + [1] * 13, [4] * 11 + [2] * 7])
    padding = torch.tensor([5, 11])
    other = tokens.clone()
    for row, cut in ((0, 5), (1, 11)):
        other[row, :cut] = (tokens[row, :cut] + 3) % 11
    for given in ({"documents": documents}, {"padding": padding}):
        before, after = model(tokens, **given), model(other, **given)
        assert before.isfinite().all()
        for row, cut in ((0, 5), (1, 11)):
            assert torch.equal(before[row, cut:], after[row, cut:])
    assert not torch.equal(model(tokens)[0, 5:], model(other)[0, 5:])


def test_gradients_are_those_of_the_dense_mask() -> None:
    given = {name: tensor.requires_grad_() for name, tensor in operands(6, 3, 10).items()}
    weights = torch.randn(2, 6, 10, 4, dtype=torch.float64)
    sparse = encoding_of(6, 3).train().op(**given, start=None, backend="reference")
    found = torch.autograd.grad((sparse * weights).sum(), list(given.values()))
    expected = torch.autograd.grad((dense(**given, groups=4) * weights).sum(), list(given.values()))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_training_compiles_without_a_break() -> None:
    model, tokens = make().train(), draw(18)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(tokens), model(tokens), rtol=0, atol=1e-12)


def test_a_cache_in_training_mode_is_refused() -> None:
    model, cache = make().train(), Cache()
    model(draw(8), cache=cache)
    with pytest.raises(UsageError, match=r"got a cache of 8 tokens beside it: call eval\(\)"):
        model(draw(4), cache=cache)


@pytest.mark.parametrize(
    ("heads", "options", "said"),
    [
        (4, {"groups": 1}, "groups must be at least 2, got 1"),
        (4, {"base": -1.0}, "base must be above 0"),
        (1, {}, "shifted-sparse has two kinds of heads, got heads = 1"),
    ],
)
def test_a_bad_option_is_named(heads: int, options: dict[str, Any], said: str) -> None:
    host = Host(dim=16, layers=1, heads=heads, key_heads=1, head_dim=4, max_length=8)
    with pytest.raises(UsageError, match=said):
        ShiftedSparse(host, **options)
