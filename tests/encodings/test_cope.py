"""CoPE's options, each against the paper's equations written out."""

import math

import pytest
import torch

from milepost.encoding import Host, Positions, build
from milepost.errors import UsageError
from milepost.model import Config, Decoder

HOST = Host(dim=16, layers=3, heads=4, key_heads=2, head_dim=4, max_length=32)


def listing_1(
    query, key, value, table, gate_keys, *, divide_gates=True, divide_content, divide_all
):
    """The paper's Listing 1 for one head, one query at a time, with each place of 1/√D a choice."""
    root, out = math.sqrt(query.shape[-1]), []
    for i in range(query.shape[0]):
        logits = []
        for j in range(i + 1):
            position = torch.zeros((), dtype=query.dtype)
            for k in range(j, i + 1):
                gate_logit = query[i] @ gate_keys[k]
                position = position + torch.sigmoid(gate_logit / (root if divide_gates else 1))
            position = position.clamp(max=len(table) - 1)
            low = int(position)
            high = min(low + 1, len(table) - 1)
            weight = position - low
            z = (1 - weight) * (query[i] @ table[low]) + weight * (query[i] @ table[high])
            content = query[i] @ key[j]
            if divide_all:
                logits.append((content + z) / root)
            else:
                logits.append(content / (root if divide_content else 1) + z)
        out.append(torch.stack(logits).softmax(0) @ value[: i + 1])
    return torch.stack(out)


def run(options, *, gate_keys_of=lambda key, value, own: key, **division):
    torch.manual_seed(0)
    layer = build("cope", HOST, {"p_max": 5, **options})[0].double()
    with torch.no_grad():
        layer.table.normal_()
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    query, key, value = (torch.randn(2, h, 9, 4, dtype=torch.float64) for h in (4, 2, 2))
    positions = Positions(torch.arange(9), 0, 9)
    operands = layer.encode(query, key, value, x=x, positions=positions, state=None)
    out = layer.op(query=operands.query, **operands.memory, **operands.params)
    own = operands.memory.get("gate_keys")
    for b in range(2):
        for h in range(4):
            g = h // 2
            gates = gate_keys_of(key, value, own)
            expected = listing_1(
                query[b, h], key[b, g], value[b, g], layer.table, gates[b, g], **division
            )
            torch.testing.assert_close(out[b, h], expected, rtol=0, atol=1e-12)


def test_the_default_is_listing_1():
    run({}, divide_content=True, divide_all=False)


def test_the_equations_as_printed_divide_by_nothing():
    run(
        {"convention": "equations"},
        divide_gates=False,
        divide_content=False,
        divide_all=False,
    )


def test_the_released_code_divides_the_position_term_too():
    run({"convention": "released"}, divide_content=True, divide_all=True)


def test_val_gates_come_from_the_values():
    run(
        {"val_gates": True},
        gate_keys_of=lambda key, value, own: value,
        divide_content=True,
        divide_all=False,
    )


def test_sep_keys_come_from_a_projection_of_the_token():
    run(
        {"sep_keys": True},
        gate_keys_of=lambda key, value, own: own,
        divide_content=True,
        divide_all=False,
    )
    layer = build("cope", HOST, {"sep_keys": True})[0]
    x = torch.randn(1, 5, 16)
    operands = layer.encode(
        torch.randn(1, 4, 5, 4),
        torch.randn(1, 2, 5, 4),
        torch.randn(1, 2, 5, 4),
        x=x,
        positions=Positions(torch.arange(5), 0, 5),
        state=None,
    )
    head = layer.gate_key.weight[4:8]  # the second key head's rows
    torch.testing.assert_close(operands.memory["gate_keys"][0, 1], x[0] @ head.mT)


def tables(**options) -> int:
    layers = build("cope", HOST, options)
    return len({id(layer.table) for layer in layers if hasattr(layer, "table")})


def test_each_layer_has_a_table_unless_they_share_one():
    assert tables() == 3
    assert tables(shared=True) == 1
    assert tables(first_layer_only=True) == 1


def test_a_table_has_one_row_more_than_p_max_and_starts_at_zero():
    table = build("cope", HOST, {"p_max": 7})[0].table
    assert table.shape == (8, 4)
    assert not table.any()


def test_it_adds_the_parameters_that_the_paper_counts():
    """Table 5: 123.7M for CoPE with a shared table of 65; sep-keys take it to 130.8M (Table 8)."""
    shape = {"dim": 768, "layers": 12, "heads": 12}
    with torch.device("meta"):

        def count(**options):
            config = Config(
                vocab_size=50257, **shape, encoding="cope", encoding_options=options, init_std=0.02
            )
            return sum(p.numel() for p in Decoder(config).parameters())

        assert round(count(shared=True) / 1e6, 1) == 123.7
        assert round(count(shared=True, sep_keys=True) / 1e6, 1) == 130.7  # printed: 130.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p_max": 0}, "p_max must be a whole number above 0, got 0"),
        ({"p_max": 2.5}, "p_max must be a whole number, got 2.5"),
        ({"sep_keys": True, "val_gates": True}, "choose one"),
        ({"convention": "listings"}, "did you mean 'listing'"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        build("cope", HOST, options)
