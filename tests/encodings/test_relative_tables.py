"""`relative` and `relative-capped`, against attention written as loops over pairs."""

import math

import pytest
import torch

from milepost.encoding import Host, Operands, Positions
from milepost.encodings.relative import Relative
from milepost.encodings.relative_capped import RelativeCapped
from milepost.errors import UsageError

HOST = Host(dim=8, layers=3, heads=4, key_heads=2, head_dim=4, max_length=7)
ROWS, LENGTH = 5, 9


def encode(encoding: Relative, first: int = 0) -> Operands:
    generator = torch.Generator().manual_seed(0)
    draw = [
        torch.randn(2, heads, LENGTH, 4, dtype=torch.float64, generator=generator)
        for heads in (4, 2, 2)
    ]
    positions = Positions(torch.arange(first, first + LENGTH), first=first, length=LENGTH)
    return encoding.encode(*draw, x=torch.zeros(2, LENGTH, 8), positions=positions, state=None)


@pytest.mark.parametrize("kind", [Relative, RelativeCapped])
def test_it_is_shaws_equation_and_its_end_is_the_cope_papers(kind: type[Relative]) -> None:
    torch.manual_seed(0)
    option = "length" if kind is Relative else "cap"
    encoding = kind(HOST, **{option: ROWS}).double()
    operands = encode(encoding)
    key, value = operands.memory["key"], operands.memory["value"]
    got = encoding.op(query=operands.query, key=key, value=value, **operands.params)
    for h in range(4):
        for i in range(LENGTH):
            logits = torch.zeros(2, i + 1, dtype=torch.float64)
            for j in range(i + 1):
                distance = i - j
                vector = key[:, h // 2, j].clone()
                if distance < ROWS:
                    vector += encoding.table[distance].detach()
                elif kind is RelativeCapped:
                    vector += encoding.table[ROWS - 1].detach()
                logits[:, j] = (operands.query[:, h, i] * vector).sum(-1) / math.sqrt(4)
            weights = logits.softmax(-1)
            expected = (weights[..., None] * value[:, h // 2, : i + 1]).sum(1)
            torch.testing.assert_close(got[:, h, i], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [Relative, RelativeCapped])
def test_no_more_rows_are_handed_over_than_there_are_distances(kind: type[Relative]) -> None:
    encoding = kind(Host(8, 3, 4, 2, 4, max_length=100))
    assert encode(encoding, first=3).params["table"].shape == (LENGTH + 3, 4)


def test_they_agree_up_to_the_cap_and_share_checkpoints() -> None:
    plain, capped = Relative(HOST), RelativeCapped(HOST)
    capped.load_state_dict(plain.state_dict())
    assert torch.equal(plain.rows(7), capped.rows(7))
    assert plain.rows(8).shape == (8, 4)
    assert plain.rows(8)[7].abs().max() == 0
    assert torch.equal(capped.rows(8), capped.table)


@pytest.mark.parametrize("kind", [Relative, RelativeCapped])
def test_all_layers_share_one_table(kind: type[Relative]) -> None:
    stack = kind.stack(HOST)
    assert len(stack) == 3
    assert len(set(map(id, stack))) == 1


def test_rows_start_at_one_over_the_root_of_head_dim() -> None:
    torch.manual_seed(0)
    table = Relative(Host(64, 1, 1, 1, 64, 2000)).table
    assert table.shape == (2000, 64)
    assert abs(table.std().item() * 8 - 1) < 0.02


@pytest.mark.parametrize(("kind", "option"), [(Relative, "length"), (RelativeCapped, "cap")])
def test_a_bad_length_is_named(kind: type[Relative], option: str) -> None:
    with pytest.raises(UsageError, match=f"{option} must be a whole number"):
        kind(HOST, **{option: 0})
