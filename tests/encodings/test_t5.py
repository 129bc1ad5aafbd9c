"""T5's buckets, against their definition in whole numbers, and its bias."""

from typing import Any

import pytest
import torch

from milepost.encoding import Host, Positions
from milepost.encodings.t5 import T5, buckets
from milepost.errors import UsageError

HOST = Host(dim=16, layers=3, heads=4, key_heads=2, head_dim=4, max_length=8)


def bucket(distance: int, count: int, max_distance: int) -> int:
    """The largest E + k with (d/E)^n ≥ (max_distance/E)^k, n = count − E, without rounding."""
    exact = count // 2
    if distance < exact:
        return distance
    n = count - exact
    return exact + max(k for k in range(n) if distance**n * exact**k >= max_distance**k * exact**n)


@pytest.mark.parametrize(
    ("count", "max_distance"),
    [(32, 128), (64, 128), (8, 64), (6, 12), (7, 100), (2, 4), (10, 160), (20, 320)],
)
def test_buckets_are_as_defined(count: int, max_distance: int) -> None:
    got = buckets(torch.arange(301), count, max_distance)
    assert got.tolist() == [bucket(d, count, max_distance) for d in range(301)]


def test_the_defaults_are_t5s_buckets() -> None:
    got = buckets(torch.tensor([0, 15, 16, 18, 19, 112, 113, 128, 10_000]), 32, 128)
    assert got.tolist() == [0, 15, 16, 16, 17, 30, 31, 31, 31]
    assert T5.options() == {"buckets": 32, "max_distance": 128, "scale": None}


def test_the_bias_is_the_buckets_number() -> None:
    encoding = T5(HOST, buckets=6, max_distance=12)
    positions = Positions(torch.arange(18, 20), first=18, length=2)
    x = torch.zeros(1, 2, 16)
    _, bias = encoding.begin(x, positions)
    for h in range(4):
        for d in range(20):
            assert bias[h, d] == encoding.table[h, bucket(d, 6, 12)]
    query, key = torch.zeros(1, 4, 2, 4), torch.zeros(1, 2, 2, 4)
    operands = encoding.encode(query, key, key, x=x, positions=positions, state=bias)
    assert operands.params == {"bias": bias, "scale": None}


def test_all_layers_share_one_bias() -> None:
    assert len(set(map(id, T5.stack(HOST)))) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"buckets": 1}, "buckets must be a whole number above 1, got 1"),
        ({"buckets": 64, "max_distance": 32}, "max_distance=32 for 64 buckets"),
        ({"scale": 0.0}, "scale must be above 0, or None"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        T5(HOST, **options)
