"""Perplexity: models whose loss is known, and every token once."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from milepost.errors import UsageError
from milepost.model import Config, Decoder
from milepost.perplexity import nats_of_tokens, perplexity, words

V = 7
SIZES = [
    (24, 8, 8),
    (25, 8, 8),
    (26, 8, 8),
    (50, 8, 3),
    (51, 8, 1),
    (9, 8, 5),
    (10, 8, 8),
    (5, 8, 2),
]
every_size = pytest.mark.parametrize(("N", "window", "stride"), SIZES)


def text(count: int, seed: int = 0) -> Tensor:
    return torch.randint(V, (count,), generator=torch.Generator().manual_seed(seed))


def unigram(chances: list[float]) -> Callable[[Tensor], Tensor]:
    """The same chances whatever was read."""
    logits = torch.tensor(chances).log()
    return lambda tokens: logits.expand(*tokens.shape, -1)


def knows_the_kth_last(k: int, sure: float = 0.9) -> Callable[[Tensor], Tensor]:
    """Says x_{t−k} again with probability `sure`; from less context, all tokens alike."""

    def logits(tokens: Tensor) -> Tensor:
        chances = torch.full((*tokens.shape, V), 1 / V)
        repeated = nn.functional.one_hot(tokens, V) * (sure - (1 - sure) / (V - 1))
        repeated = repeated + (1 - sure) / (V - 1)
        chances[:, k - 1 :] = repeated[:, : tokens.shape[1] - k + 1]
        return chances.log()

    return logits


class Contexts:
    """Notes from which context each token is said. The text is 0, 1, 2, …, so that x_t = t."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.seen: Counter[int] = Counter()
        self.batches: list[tuple[int, ...]] = []

    def __call__(self, tokens: Tensor) -> Tensor:
        assert tokens.dtype == torch.int64
        self.batches.append(tuple(tokens.shape))
        for row in tokens.tolist():
            assert row == list(range(row[0], row[0] + len(row)))
        # −ln p of the next token is then its context's length, wherever it stands
        context = torch.arange(1, tokens.shape[1] + 1, dtype=torch.float64).expand(tokens.shape)
        right = nn.functional.one_hot(tokens + 1, self.count).bool()
        p = (-context).exp()[..., None]
        return torch.where(right, p, (1 - p) / (self.count - 1)).log()


@every_size
def test_a_unigram_model_has_the_cross_entropy_of_the_counts(
    N: int, window: int, stride: int
) -> None:
    chances = [0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.05]
    tokens = text(N)
    found = perplexity(unigram(chances), tokens, window=window, stride=stride)
    nats = -sum(math.log(chances[token]) for token in tokens.tolist()[1:]) / (N - 1)
    assert found.nats == pytest.approx(nats, rel=1e-6)
    assert found.perplexity == pytest.approx(math.exp(nats), rel=1e-6)
    assert found.bits == pytest.approx(nats / math.log(2), rel=1e-6)
    assert found.tokens == N - 1


def test_a_model_that_knows_nothing_is_as_perplexed_as_it_has_tokens() -> None:
    found = perplexity(unigram([1 / V] * V), text(40), window=8)
    assert found.perplexity == pytest.approx(V, rel=1e-6)
    assert found.bits_per(2 * found.tokens) == pytest.approx(math.log2(V) / 2, rel=1e-6)
    np.testing.assert_allclose(found.by_position, math.log(V), rtol=1e-6)


@every_size
@pytest.mark.parametrize("batch", [1, 3, 100])
def test_every_token_is_scored_once_from_the_context_promised(
    N: int, window: int, stride: int, batch: int
) -> None:
    model = Contexts(N)
    context = nats_of_tokens(model, torch.arange(N), window=window, stride=stride, batch=batch)
    assert len(context) == N - 1
    for t, found in enumerate(context.round().astype(int), start=1):
        if t <= window:
            assert found == t, "near the beginning all that there is"
        else:
            assert window - stride + 1 <= found <= window
            assert (t - found) % stride == 0, "a window begins at a multiple of the stride"
    assert max(rows for rows, _ in model.batches) <= batch
    assert max(length for _, length in model.batches) <= window
    np.testing.assert_allclose(context, context.round(), rtol=0, atol=1e-9)


@every_size
def test_by_position_is_the_mean_over_those_said_from_so_much_context(
    N: int, window: int, stride: int
) -> None:
    model = Contexts(N)
    context = nats_of_tokens(model, torch.arange(N), window=window, stride=stride).round()
    found = perplexity(model, torch.arange(N), window=window, stride=stride)
    expected = Counter(context.astype(int).tolist())
    assert found.counts.tolist() == [expected[n] for n in range(1, window + 1)]
    assert found.counts.sum() == N - 1
    for n, mean in enumerate(found.by_position, start=1):
        assert math.isnan(mean) if not expected[n] else mean == pytest.approx(n)
    assert found.nats == pytest.approx(context.mean())


def test_context_helps_a_model_that_needs_it() -> None:
    """A periodic text, and a model that knows it k tokens later: nothing helps but k tokens."""
    k, sure, N = 4, 0.9, 201
    tokens = torch.arange(N) % k
    known, unknown = -math.log(sure), math.log(V)

    apart = perplexity(knows_the_kth_last(k), tokens, window=8)
    np.testing.assert_allclose(apart.by_position[: k - 1], unknown, rtol=1e-5)
    np.testing.assert_allclose(apart.by_position[k - 1 :], known, rtol=1e-5)
    assert apart.nats == pytest.approx((3 * unknown + 5 * known) / 8, rel=1e-5)

    sliding = perplexity(knows_the_kth_last(k), tokens, window=8, stride=4)
    beginning = (k - 1) * (unknown - known) / (N - 1)
    assert sliding.nats == pytest.approx(known + beginning, rel=1e-5)
    assert perplexity(knows_the_kth_last(k), tokens, window=3).nats == pytest.approx(unknown)


def test_without_a_stride_windows_do_not_overlap() -> None:
    model = knows_the_kth_last(2)
    given = perplexity(model, text(50), window=8, stride=8)
    left_out = perplexity(model, text(50), window=8)
    assert left_out.nats == given.nats
    assert left_out.counts.tolist() == given.counts.tolist()


def test_a_window_past_the_text_reads_all_of_it() -> None:
    found = perplexity(knows_the_kth_last(2), text(9), window=20)
    assert found.counts.tolist() == [1] * 8 + [0] * 12
    assert np.isnan(found.by_position[8:]).all()


@pytest.mark.parametrize("stride", [3, 16])
def test_of_a_decoder_it_is_the_cross_entropy_of_its_logits(stride: int) -> None:
    config = Config(vocab_size=V, dim=16, layers=2, heads=2, encoding="rope")
    model, tokens = Decoder(config).double().eval(), text(70)
    found = perplexity(model, tokens.to(torch.uint8), window=16, stride=stride)
    losses = []
    for t in range(1, 70):
        start = 0 if t <= 16 else -(-(t - 16) // stride) * stride
        chances = model(tokens[None, start:t])[0, -1].log_softmax(-1)
        losses.append(-chances[tokens[t]].item())
    assert found.nats == pytest.approx(sum(losses) / 69, rel=1e-12)


def test_an_impossible_token_has_infinite_perplexity() -> None:
    chances = [1.0] + [0.0] * (V - 1)
    assert perplexity(unigram(chances), text(20), window=4).perplexity == math.inf


def test_bf16_logits_are_summed_in_fp32() -> None:
    chances = torch.tensor([0.5, 0.5] + [0.0] * (V - 2))
    logits = chances.log().bfloat16().float().log_softmax(-1)
    rounded = perplexity(
        lambda tokens: chances.log().bfloat16().expand(*tokens.shape, -1),
        text(20) % 2,
        window=4,
    )
    assert rounded.nats == pytest.approx(-logits[0].item(), rel=1e-6)


FLAT = unigram([1 / V] * V)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"logits": 3}, r"logits must be a function from tokens \(B, S\)"),
        ({"logits": nn.Identity()}, "logits must be a module in evaluation mode, got training"),
        ({"logits": lambda tokens: object()}, "must return a tensor, got object: for Hugging Face"),
        ({"logits": lambda tokens: torch.zeros(2, 3, V)}, r"must return floating numbers of shape"),
        ({"logits": lambda tokens: FLAT(tokens).long()}, "must return floating numbers"),
        ({"logits": lambda tokens: FLAT(tokens)[..., :3]}, "below the model's vocabulary, 3, got"),
        ({"logits": lambda tokens: FLAT(tokens) * math.nan}, "logits must be numbers, got NaN"),
        ({"tokens": [1, 2]}, "tokens must be a tensor, got list"),
        ({"tokens": text(8).float()}, "tokens must be integers, got torch.float32"),
        ({"tokens": text(8)[None]}, r"tokens must be one text of 2 tokens or more, \(N,\), got"),
        ({"tokens": text(1)}, "tokens must be one text of 2 tokens or more"),
        ({"tokens": text(9) - 3}, "tokens must be at least 0"),
        ({"window": 0}, "window must be a whole number above 0, got 0"),
        ({"window": 2.0}, "window must be a whole number above 0, got 2.0"),
        ({"stride": True}, "stride must be a whole number above 0, got True"),
        ({"stride": 5}, "stride must be at most the window, 4, got 5"),
        ({"batch": 0}, "batch must be a whole number above 0"),
    ],
)
def test_a_mistake_is_named(arguments: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"logits": FLAT, "tokens": text(40), "window": 4, **arguments}
    with pytest.raises(UsageError, match=said):
        perplexity(given.pop("logits"), given.pop("tokens"), **given)


@pytest.mark.parametrize("count", [0, 1.5, True])
def test_another_unit_is_counted(count: Any) -> None:
    with pytest.raises(UsageError, match="count must be a whole number above 0, got"):
        perplexity(FLAT, text(8), window=4).bits_per(count)


def test_words_and_bytes_of_a_text_whose_perplexity_is_known() -> None:
    """Each token has V equally likely: of two tokens a word, V² is the perplexity of a word."""
    found = perplexity(unigram([1 / V] * V), text(41), window=8)
    assert found.per(20) == pytest.approx(V**2, rel=1e-6)
    assert found.per(40) == pytest.approx(found.perplexity, rel=1e-6)
    assert found.per(1) == pytest.approx(V**40, rel=1e-5)
    impossible = unigram([1.0] + [0.0] * (V - 1))
    assert perplexity(impossible, text(20), window=4).per(3) == math.inf


def test_words_are_what_white_space_parts() -> None:
    said = b" \n = A title = \n \n Two  words\tmore .\n"
    assert words(said) == 8
    assert words(said, line_ends=True) == 12
    assert words(b"") == 0


@pytest.mark.parametrize("window", [1, 2, 7, 8, 100])
@pytest.mark.parametrize("stride", [1, 5])
def test_buckets_hold_every_position_once(window: int, stride: int) -> None:
    found = perplexity(knows_the_kth_last(3), text(90), window=window, stride=min(stride, window))
    ends, means = found.by_bucket()
    assert ends[0] == 1
    assert ends[-1] == window
    assert ends == sorted(set(ends))
    sums = np.nan_to_num(found.by_position) * found.counts
    for first, last, mean in zip([0, *ends], ends, means, strict=False):
        count = found.counts[first:last].sum()
        assert (mean is None) == (count == 0)
        if mean is not None:
            assert mean == pytest.approx(sums[first:last].sum() / count)
            assert last <= max(first + 1, 1.6 * first), "they grow slowly"
