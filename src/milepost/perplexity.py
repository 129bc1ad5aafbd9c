"""How well a model says a text: nats for each token, over windows of one long text.

    nats = −(1 / M) Σ_t ln p(x_t | x_c(t) … x_{t−1}),    perplexity = e^nats

over the M = N − 1 tokens that have one before them, each scored once. A model reads `window` tokens
at a time. Windows begin at 0, stride, 2 · stride, …; the first scores all tokens that follow its
own, and each later one the last `stride` of them. So x_t is said from between window − stride + 1
and `window` tokens (near the beginning of the text from all there are), the most even context that
one pass per `stride` tokens can give.

- stride = window: windows do not overlap, and each token is read once. It is the commonest
  evaluation and the cheapest; a token at the beginning of a window has hardly any context.
- stride < window: sliding. stride = 1 gives every token its full context, at `window` times the
  cost.

Published figures of this name differ in the stride; in whether a window's first token is said from
nothing, or not at all (here it is the last that the window before says); in whether a token that
lies in several windows counts once, as here, or in each; and in the tokens. Models of different
tokens are compared by bits per byte (`bits_per`) or the perplexity of a word (`per`).

    bits per byte = M · nats / (bytes · ln 2),    perplexity of a word = e^(M · nats / words)

A model is any function from tokens (B, S) to logits (B, S, V), of which those at token t say token
t + 1: a `milepost.model.Decoder`, or `lambda tokens: model(tokens).logits` for one of Hugging Face.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from milepost.errors import UsageError
from milepost.shapes import check_tensor, shape

Logits = Callable[[Tensor], Tensor]
"""From tokens (B, S) to logits (B, S, V)."""


@dataclass(frozen=True, eq=False)
class Perplexity:
    """How well a text was said.

    Attributes:
        nats: the mean over the scored tokens.
        tokens: how many were scored: all of the text but the first.
        by_position: (window,), the mean over the tokens said after reading 1, 2, …, window tokens
            of their window; NaN where there are none, as the text was shorter.
        counts: (window,), of how many tokens each of these is the mean. Sliding windows score
            the earlier positions in the first window only.
    """

    nats: float
    tokens: int
    by_position: Float64[np.ndarray, " window"]
    counts: Int64[np.ndarray, " window"]

    @property
    def perplexity(self) -> float:
        """e^nats: among so many equally likely tokens one would hesitate as much."""
        return math.exp(self.nats) if self.nats < 700 else math.inf

    @property
    def bits(self) -> float:
        """Per token. Where tokens are bytes, these are the bits per byte."""
        return self.nats / math.log(2)

    def bits_per(self, count: int) -> float:
        """All bits over another unit: `count` is how many bytes, or words, the tokens are of."""
        return self._nats_per(count) / math.log(2)

    def per(self, count: int) -> float:
        """The perplexity of another unit: that of a word, if the tokens are `count` words."""
        nats = self._nats_per(count)
        return math.exp(nats) if nats < 700 else math.inf

    def by_bucket(self) -> tuple[list[int], list[float | None]]:
        """`by_position` in buckets that grow by √2: where each ends, and its mean, or None."""
        window = len(self.counts)
        ends = sorted({*(round(2 ** (k / 2)) for k in range(2 * window.bit_length())), window})
        ends = [end for end in ends if end <= window]
        edges = [0, *ends[:-1]]
        counts = np.add.reduceat(self.counts, edges)
        sums = np.add.reduceat(np.nan_to_num(self.by_position, posinf=np.inf) * self.counts, edges)
        means = [float(s / n) if n else None for s, n in zip(sums, counts, strict=True)]
        return ends, means

    def _nats_per(self, count: int) -> float:
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise UsageError(
                f"count must be a whole number above 0, got {count!r}: give how many bytes or "
                f"words the {self.tokens} tokens are"
            )
        return self.nats * self.tokens / count


def words(text: bytes, *, line_ends: bool = False) -> int:
    """How many words a text has: what white space parts, and each line end too, if so wished.

    With line ends it is WikiText's count, in which <eos> stands for them: 245,569 for the test of
    WikiText-103 (217,646 for its validation).
    """
    return len(text.split()) + (text.count(b"\n") if line_ends else 0)


def perplexity(
    logits: Logits, tokens: Tensor, *, window: int, stride: int | None = None, batch: int = 8
) -> Perplexity:
    """Measure a model on one long text.

    Args:
        logits: from tokens (B, S) to logits (B, S, V), causal; a module must be in evaluation mode.
        tokens: (N,) integers, the text, on the model's device.
        window: how many tokens the model reads at a time, at most.
        stride: how far a window is from the next; `window` if None.
        batch: how many windows are read at once. It changes nothing but the memory and the time.

    Raises:
        UsageError: an argument does not fit, or the logits are not of that shape or not a number.
    """
    stride = window if stride is None else stride
    nats = nats_of_tokens(logits, tokens, window=window, stride=stride, batch=batch)
    counted = np.arange(1, len(tokens))
    position = counted - 1 - window_starts(counted, window, stride)
    counts = np.bincount(position, minlength=window)
    sums = np.bincount(position, weights=nats, minlength=window)
    means = np.full(window, np.nan)
    np.divide(sums, counts, out=means, where=counts > 0)
    return Perplexity(float(nats.mean()), len(nats), means, counts)


def window_starts(
    tokens: Int64[np.ndarray, " n"], window: int, stride: int
) -> Int64[np.ndarray, " n"]:
    """Where the window begins that scores x_t, for each t: the earliest that reads up to t − 1."""
    return np.maximum(0, -(-(tokens - window) // stride)) * stride


@torch.inference_mode()
def nats_of_tokens(
    logits: Logits, tokens: Tensor, *, window: int, stride: int, batch: int = 8
) -> Float64[np.ndarray, " N_minus_1"]:
    """−ln p of each token but the first, the arguments being those of `perplexity`."""
    _check(logits, tokens, window, stride, batch)
    nats = np.empty(len(tokens) - 1)
    for starts, length in _windows(len(tokens), window, stride, batch):
        read = torch.stack([tokens[s : s + length] for s in starts]).long()
        said = torch.stack([tokens[s + 1 : s + length + 1] for s in starts]).long()
        found = logits(read)
        _check_logits(found, read, said)
        new = 0 if starts[0] == 0 else window - stride
        # in fp32: bf16 would round the sum over the vocabulary
        precise = found[:, new:].to(torch.promote_types(found.dtype, torch.float32))
        losses = cross_entropy(precise.flatten(0, 1), said[:, new:].flatten(), reduction="none")
        if losses.isnan().any():
            raise UsageError(
                f"logits must be numbers, got NaN for tokens between {starts[0]} and "
                f"{starts[-1] + length}: evaluate in higher precision, or mend the model"
            )
        for start, row in zip(starts, losses.view(len(starts), -1).cpu(), strict=True):
            nats[start + new : start + length] = row.numpy()
    return nats


def _windows(count: int, window: int, stride: int, batch: int) -> Iterator[tuple[list[int], int]]:
    """Where windows begin and how many tokens they read; those of one item are read together.

    The first is alone, for it scores all its tokens; the last may be shorter, and is alone too.
    """
    last = max(0, -(-(count - 1 - window) // stride)) * stride
    yield [0], min(window, count - 1)
    inner = range(stride, last, stride)
    for first in range(0, len(inner), batch):
        yield list(inner[first : first + batch]), window
    if last > 0:
        yield [last], count - 1 - last


def _check(logits: Logits, tokens: Tensor, window: int, stride: int, batch: int) -> None:
    if not callable(logits):
        raise UsageError(
            f"logits must be a function from tokens (B, S) to logits (B, S, V), got "
            f"{type(logits).__name__}: give the model itself, or a lambda around it"
        )
    if isinstance(logits, nn.Module) and logits.training:
        raise UsageError("logits must be a module in evaluation mode, got training: call eval()")
    check_tensor("tokens", tokens)
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
        raise UsageError(f"tokens must be integers, got {tokens.dtype}: convert with .long()")
    if tokens.ndim != 1 or len(tokens) < 2:
        raise UsageError(
            f"tokens must be one text of 2 tokens or more, (N,), got {shape(tokens)}: flatten it"
        )
    for name, number in (("window", window), ("stride", stride), ("batch", batch)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise UsageError(f"{name} must be a whole number above 0, got {number!r}")
    if stride > window:
        raise UsageError(
            f"stride must be at most the window, {window}, got {stride}: the tokens in between "
            f"would not be read"
        )


def _check_logits(found: object, read: Tensor, said: Tensor) -> None:
    if not isinstance(found, Tensor):
        raise UsageError(
            f"logits must return a tensor, got {type(found).__name__}: for Hugging Face, give "
            f"lambda tokens: model(tokens).logits"
        )
    if found.ndim != 3 or found.shape[:2] != read.shape or not found.is_floating_point():
        raise UsageError(
            f"logits must return floating numbers of shape (batch, time, vocabulary) = "
            f"({read.shape[0]}, {read.shape[1]}, any), got {found.dtype} {shape(found)}"
        )
    least, most = int(said.min()), int(said.max())
    if least < 0 or most >= found.shape[2]:
        raise UsageError(
            f"tokens must be at least 0 and below the model's vocabulary, {found.shape[2]}, got "
            f"ids from {least} to {most}: encode the text with the model's own tokenizer"
        )
