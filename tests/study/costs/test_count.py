"""What is counted, against formulas that are written out by hand for each of some encodings."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn

from milepost import encoding
from milepost.errors import UsageError
from milepost.model import Config, Decoder
from milepost.study.costs import count as counting
from milepost.study.costs.count import count

T, DIM, LAYERS, HEADS, HIDDEN, TOKENS = 12, 32, 3, 4, 40, 11
D = DIM // HEADS
PRODUCTS = 2 * T * T * DIM * LAYERS
WITHOUT_PAIRS = T * (LAYERS * (4 * DIM**2 + 3 * DIM * HIDDEN) + DIM * TOKENS)


def llama(name, **options):
    return Config(
        vocab_size=TOKENS,
        dim=DIM,
        layers=LAYERS,
        heads=HEADS,
        mlp="swiglu",
        mlp_dim=HIDDEN,
        norm="rms",
        tied=False,
        bias=False,
        max_length=T,
        encoding=name,
        encoding_options=options,
    )


def tape_paper(hidden):
    """Eqs. 7 and 8: two more widths of the values, ψ, W₂ diag(ψ) W₁ and what it is applied to.

    W₂ and W₁ meet entry by entry before ψ does, which is no product of matrices.
    """
    pairs = 2 * T * T * DIM
    psi = T * HEADS * D * hidden
    matrix = T * HEADS * 2 * 2 * hidden
    applied = T * HEADS * 2 * 2 * D
    return (LAYERS - 1) * (pairs + psi + matrix + applied)


def tape_released(hidden):
    """One more width of the values, the gate, D diag(ψ) U across heads, and what it is applied to.

    The number r of a head is no product.
    """
    pairs = T * T * DIM
    psi = T * DIM * hidden
    mixing = T * HEADS * HEADS * hidden
    applied = T * HEADS * HEADS * D
    return (LAYERS - 1) * (pairs + psi + mixing + applied)


MORE_MACS = [
    ("rope", {}, 0),
    ("none", {}, 0),
    ("t5", {}, 0),
    ("stick-breaking", {}, 0),
    # q·e for the p_max + 1 rows of the table, in every head
    ("cope", {"p_max": 5}, LAYERS * T * DIM * 6),
    ("cope", {"p_max": 5, "sep_keys": True}, LAYERS * (T * DIM * 6 + T * DIM * DIM + T * T * DIM)),
    # 1 → 7 → H for every pair
    ("fire", {"hidden": 7}, LAYERS * T * T * (7 + 7 * HEADS)),
    # one gate a head
    ("fox", {}, LAYERS * T * DIM * HEADS),
    ("tape", {"hidden": 6}, tape_paper(6)),
    ("tape", {"hidden": 6, "variant": "released"}, tape_released(6)),
]


@pytest.mark.parametrize(("name", "options", "more"), MORE_MACS)
def test_macs(name, options, more):
    counted = count(llama(name, **options), T)
    assert counted.macs == WITHOUT_PAIRS + PRODUCTS + more


# For each pair of a head. Softmax: 5. CoPE: the gate, its sum, the clamp, the two neighbours, four
# for the interpolation, and adding it. FoX: the difference of two sums, and adding it. FIRE, for
# all heads of a layer: c·d, log, the quotient, the bias and ReLU of each hidden unit; then adding
# it. Stick-breaking: softplus, its sum from the newest on, the sum of all, the difference, exp.
PAIRS = [
    ("rope", {}, 5),
    ("absolute", {}, 5),
    ("alibi", {}, 5 + 1),
    ("fox", {}, 5 + 2),
    ("stick-breaking", {}, 5),
    ("cope", {}, 5 + 1 + 1 + 1 + 1 + 2 + 4 + 1),
    ("fire", {"hidden": 8}, 5 + (3 + 8 + 8) / HEADS + 1),
]


@pytest.mark.parametrize(("name", "options", "each"), PAIRS)
def test_elementwise_of_each_pair(name, options, each):
    assert count(llama(name, **options), T).pair_elementwise == LAYERS * HEADS * each


def test_elementwise_of_each_token():
    """Of RoPE's model: norms, rotations, scales, residuals, SiLU and its gate; angles besides."""
    norm = 4 * DIM + 2
    rotation = 2 * 3 * DIM
    layer = 2 * norm + rotation + DIM + 2 * DIM + 2 * HIDDEN
    angles = T * 3 * (D // 2) + D // 2 * 2
    counted = count(llama("rope"), T)
    by_tokens = counted.elementwise - T * T * counted.pair_elementwise
    assert by_tokens == T * (LAYERS * layer + norm) + angles


@pytest.mark.parametrize("name", encoding.names())
def test_nothing_of_an_encoding_is_left_out(name):
    counted = count(replace(llama(name), layers=2), T)
    assert counted.uncounted == ()
    assert counted.pair_macs >= 2 * DIM * 2


@pytest.mark.parametrize("name", ["rope", "cope", "fire", "stick-breaking", "tape", "relative"])
def test_a_count_is_a_polynomial_of_the_length(name):
    """The second difference is the same one token earlier."""
    earlier, later = (count(replace(llama(name), layers=2), length) for length in (T - 1, T))
    assert earlier.pair_macs == later.pair_macs
    assert earlier.pair_elementwise == later.pair_elementwise


def test_seen_pairs():
    """With T (T + 1) / 2 pairs in the place of T²."""
    counted = count(llama("rope"), T)
    assert counted.pair_macs == 2 * DIM * LAYERS
    assert counted.seen.macs == WITHOUT_PAIRS + 2 * DIM * LAYERS * T * (T + 1) // 2
    assert counted.seen.elementwise == counted.elementwise - 5 * HEADS * LAYERS * T * (T - 1) // 2
    assert counted.to_dict()["seen_macs"] == counted.seen.macs
    assert counted.flops == 2 * counted.macs + counted.elementwise


def test_batch():
    one, three = (count(llama("cope"), T, batch=batch) for batch in (1, 3))
    assert three.macs == 3 * one.macs
    assert three.pair_elementwise == 3 * one.pair_elementwise


def test_parameters():
    model_of = llama("tape")
    with torch.device("meta"):
        expected = sum(p.numel() for p in Decoder(model_of).parameters())
    assert count(model_of, T).parameters == expected


def test_layer_norm_and_biases():
    """Three more a number than RMS norm, and one for each output of a linear layer with a bias."""
    settings = {**llama("none").to_dict(), "norm": "layer", "bias": True}
    biased = count(Config.from_dict(settings), T)
    plain = count(llama("none"), T)
    norms = (2 * LAYERS + 1) * T * (3 * DIM - 2)
    biases = LAYERS * T * (5 * DIM + 2 * HIDDEN)
    assert biased.elementwise - plain.elementwise == norms + biases
    assert biased.macs == plain.macs


def test_what_it_does_not_know_is_named():
    """An operation of a future release, that none of the tables has."""
    counter = counting._Counter()
    with counter:
        torch.ones(4).cumprod(0)
        nn.functional.relu(torch.ones(4))
    assert counter.elementwise == 4
    assert any("cumprod" in name for name in counter.uncounted)


def test_nothing_is_counted_twice():
    """Two counts of one configuration are the same, whatever was counted before."""
    first, _, again = (count(llama(name), T) for name in ("rope", "cope", "rope"))
    assert first == again


@pytest.mark.parametrize(("length", "batch"), [(2, 1), (T, 0)])
def test_refusals(length, batch):
    with pytest.raises(UsageError, match="length must be at least 3 and batch at least 1"):
        count(llama("rope"), length, batch)


def test_lengths_are_those_of_learned_tables():
    """A second difference asks for no token past the end of a table."""
    assert count(llama("absolute"), T).length == T
    counts = [count(llama("absolute"), length).macs for length in range(3, 7)]
    steps = [after - before for before, after in pairwise(counts)]
    assert len({after - before for before, after in pairwise(steps)}) == 1
