"""Learned absolute positions."""

import pytest
import torch

from milepost.encoding import Host, Positions
from milepost.encodings.absolute import Absolute
from milepost.errors import UsageError

HOST = Host(dim=8, layers=2, heads=2, key_heads=1, head_dim=4, max_length=6)


def test_each_token_gets_the_row_of_its_place() -> None:
    encoding = Absolute(HOST)
    x, index = torch.randn(2, 3, 8), torch.tensor([[0, 1, 0], [4, 5, 2]])
    added, state = encoding.begin(x, Positions(index, first=3, length=3))
    assert state is None
    for row in range(2):
        for column in range(3):
            expected = x[row, column] + encoding.table[index[row, column]]
            assert torch.equal(added[row, column], expected)


def test_rows_start_at_one_over_the_root_of_dim() -> None:
    torch.manual_seed(0)
    table = Absolute(Host(64, 1, 1, 1, 64, 2000)).table
    assert table.shape == (2000, 64)
    assert abs(table.std().item() * 8 - 1) < 0.02


def test_a_token_past_the_table_is_refused() -> None:
    encoding = Absolute(HOST)
    index = torch.arange(4, 7)
    with pytest.raises(UsageError, match=r"6 tokens, got a token at position 6.*max_length"):
        encoding.begin(torch.zeros(1, 3, 8), Positions(index, first=4, length=3))


def test_a_long_row_of_short_documents_is_not_refused() -> None:
    encoding = Absolute(HOST)
    index = torch.arange(12)[None] % 6
    added, _ = encoding.begin(torch.zeros(1, 12, 8), Positions(index, first=0, length=12))
    assert torch.equal(added[0, :6], added[0, 6:])


def test_the_option_length_overrides_the_models() -> None:
    assert Absolute(HOST, length=9).table.shape == (9, 8)


@pytest.mark.parametrize("length", [0, -3, 2.5, "9"])
def test_a_bad_length_is_named(length: int) -> None:
    with pytest.raises(UsageError, match=r"length must be a whole number.*None for 6"):
        Absolute(HOST, length=length)
