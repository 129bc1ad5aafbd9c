"""The checks of operands: every message names the argument, what was expected and what came."""

import pytest
import torch

from milepost import ops, shapes
from milepost.errors import UsageError

B, H, G, S, T, D, V = 2, 4, 2, 3, 5, 8, 6


def operands(**changed):
    return {
        "query": torch.randn(B, H, S, D),
        "key": torch.randn(B, G, T, D),
        "value": torch.randn(B, G, T, V),
        **changed,
    }


def network(**changed):
    return {
        "weight_in": torch.randn(7),
        "bias_in": torch.randn(7),
        "weight_out": torch.randn(7, D),
        **changed,
    }


def refused(op, given, *fragments):
    """`op` refuses, in a message with all the fragments."""
    with pytest.raises(UsageError) as caught:
        op(**given)
    message = str(caught.value)
    for fragment in fragments:
        assert fragment in message, message


EVERY_OP = {
    ops.softmax_attention: {},
    ops.bias_attention: {"bias": torch.zeros(H, 3)},
    ops.relative_attention: {"table": torch.zeros(3, D)},
    ops.cope_attention: {"table": torch.zeros(3, D)},
    ops.cope_alibi_attention: {"slopes": torch.zeros(H)},
    ops.cope_mlp_attention: network(),
    ops.forgetting_attention: {"log_f": torch.zeros(B, H, T)},
    ops.stick_breaking_attention: {},
}

MISTAKES = {
    "query of 3 axes": (
        {"query": torch.randn(H, S, D)},
        ["query must have 4 axes (batch, heads, time, head_dim)", "got (4, 3, 8)"],
    ),
    "key of 5 axes": (
        {"key": torch.randn(1, B, G, T, D)},
        ["key must have 4 axes", "got (1, 2, 2, 5, 8)"],
    ),
    "value of 2 axes": ({"value": torch.randn(T, V)}, ["value must have 4 axes", "got (5, 6)"]),
    "query that is no tensor": (
        {"query": [[1.0]]},
        ["query must be a tensor, got list", "torch.as_tensor()"],
    ),
    "start that is no tensor": ({"start": 3}, ["start must be a tensor, got int"]),
    "no head_dim": (
        {"query": torch.randn(B, H, S, 0), "key": torch.randn(B, G, T, 0)},
        ["query must have a head_dim above 0", "got (2, 4, 3, 0)"],
    ),
    "scale that is no number": (
        {"scale": "0.5"},
        ["scale must be a finite number", "got '0.5'"],
    ),
    "scale that is not finite": (
        {"scale": float("nan")},
        ["scale must be a finite number", "got nan"],
    ),
    "query of integers": (
        {"query": torch.ones(B, H, S, D, dtype=torch.int64)},
        ["query must be float16, bfloat16, float32 or float64", "got torch.int64", ".float()"],
    ),
    "query that cannot be added up": (
        {"query": torch.zeros(B, H, S, D, dtype=torch.float8_e4m3fn)},
        ["query must be float16", "got torch.float8_e4m3fn"],
    ),
    "complex query": (
        {"query": torch.zeros(B, H, S, D, dtype=torch.complex64)},
        ["query must be float16", "got torch.complex64"],
    ),
    "key of another dtype": (
        {"key": torch.randn(B, G, T, D).double()},
        ["key must have the dtype of query, torch.float32", "got torch.float64", ".to()"],
    ),
    "value of another dtype": (
        {"value": torch.randn(B, G, T, V).half()},
        ["value must have the dtype of query, torch.float32", "got torch.float16"],
    ),
    "key on another device": (
        {"key": torch.randn(B, G, T, D, device="meta")},
        ["key must be on the device of query, cpu", "got meta", ".to()"],
    ),
    "value on another device": (
        {"value": torch.randn(B, G, T, V, device="meta")},
        ["value must be on the device of query, cpu", "got meta"],
    ),
    "key of another batch": (
        {"key": torch.randn(3, G, T, D)},
        ["key must have the batch and head_dim of query, (2, heads, time, 8)", "got (3, 2, 5, 8)"],
    ),
    "key of another head_dim": (
        {"key": torch.randn(B, G, T, 7)},
        ["key must have the batch and head_dim of query", "got (2, 2, 5, 7)"],
    ),
    "value of another batch": (
        {"value": torch.randn(1, G, T, V)},
        ["value must have the batch, heads and time of key, (2, 2, 5, any)", "got (1, 2, 5, 6)"],
    ),
    "value of other heads": (
        {"value": torch.randn(B, H, T, V)},
        ["value must have the batch, heads and time of key", "got (2, 4, 5, 6)"],
    ),
    "value of another time": (
        {"value": torch.randn(B, G, S, V)},
        ["value must have the batch, heads and time of key", "got (2, 2, 3, 6)"],
    ),
    "heads that do not divide": (
        {"key": torch.randn(B, 3, T, D), "value": torch.randn(B, 3, T, V)},
        ["a multiple of key heads", "got 4 query heads and 3 key heads", "the divisors of 4"],
    ),
    "more key heads than heads": (
        {"key": torch.randn(B, 8, T, D), "value": torch.randn(B, 8, T, V)},
        ["got 4 query heads and 8 key heads"],
    ),
    "no key heads": (
        {"key": torch.randn(B, 0, T, D), "value": torch.randn(B, 0, T, V)},
        ["got 4 query heads and 0 key heads"],
    ),
    "more queries than keys": (
        {"key": torch.randn(B, G, 2, D), "value": torch.randn(B, G, 2, V)},
        ["aligned to the end of the keys", "got 3 queries and 2 keys", "pass the keys of earlier"],
    ),
    "start of floats": (
        {"start": torch.zeros(B, S)},
        ["start must be int32 or int64", "the first key", "got torch.float32", ".long()"],
    ),
    "start that is a mask": (
        {"start": torch.ones(B, S, dtype=torch.bool)},
        ["start must be int32 or int64", "got torch.bool"],
    ),
    "start over keys": (
        {"start": torch.zeros(B, T, dtype=torch.int64)},
        ["start must have shape (batch, queries) = (2, 3)", "got (2, 5)"],
    ),
    "start of one axis": (
        {"start": torch.zeros(B, dtype=torch.int32)},
        ["start must have shape (batch, queries) = (2, 3)", "got (2,)"],
    ),
    "start on another device": (
        {"start": torch.zeros(B, S, dtype=torch.int64, device="meta")},
        ["start must be on the device of query, cpu", "got meta"],
    ),
}


@pytest.mark.parametrize(("changed", "fragments"), MISTAKES.values(), ids=MISTAKES)
@pytest.mark.parametrize("op", EVERY_OP, ids=lambda op: op.__name__)
def test_every_op_checks_what_all_share(op, changed, fragments):
    refused(op, operands(**EVERY_OP[op], **changed), *fragments)


@pytest.mark.parametrize("op", EVERY_OP, ids=lambda op: op.__name__)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_the_operands_as_they_are_pass(op, dtype):
    op(**operands(**EVERY_OP[op], start=torch.zeros(B, S, dtype=dtype)))


def mistakes_in(name, good, bad_shapes, wanted):
    """Cases for one parameter: a wrong dtype, a wrong device and wrong shapes."""
    yield {name: good.tolist()}, [f"{name} must be a tensor", "got list"]
    yield {name: good.long()}, [f"{name} must be float16", "got torch.int64"]
    yield {name: good.to("meta")}, [f"{name} must be on the device of query, cpu", "got meta"]
    for shape in bad_shapes:
        yield {name: torch.zeros(shape)}, [wanted, "got ", str(shape)]


TABLE = "must have shape (P + 1, head_dim) = (any, 8) or (heads, P + 1, head_dim) = (4, any, 8)"
BAD_TABLES = [(8,), (3, 7), (0, 8), (1, 3, 8), (2, 3, 8), (4, 0, 8), (2, 4, 3, 8)]
BIAS = (
    "bias must be a table (heads, distances) = (4, any) or dense "
    "(batch or 1, heads or 1, queries, keys) = (2, 4, 3, 5)"
)
BAD_BIASES = [(4,), (2, 3), (4, 0), (4, 3, 5), (2, 4, 5, 5), (2, 2, 3, 5), (3, 4, 3, 5)]
BAD_GATES = [(2, 2, 5), (2, 4, 3), (1, 4, 5), (4, 5)]

OF_ONE_OP = {
    ops.bias_attention: [({}, mistakes_in("bias", torch.zeros(H, 3), BAD_BIASES, BIAS))],
    ops.relative_attention: [
        ({}, mistakes_in("table", torch.zeros(3, D), BAD_TABLES, f"table {TABLE}"))
    ],
    ops.cope_attention: [
        ({}, mistakes_in("table", torch.zeros(3, D), BAD_TABLES, f"table {TABLE}")),
        (
            {"table": torch.zeros(3, D)},
            mistakes_in("relative_table", torch.zeros(3, D), BAD_TABLES, f"relative_table {TABLE}"),
        ),
    ],
    ops.cope_alibi_attention: [
        (
            {},
            mistakes_in(
                "slopes",
                torch.zeros(H),
                [(2,), (4, 1), ()],
                "slopes must have shape (heads,) = (4,)",
            ),
        )
    ],
    ops.cope_mlp_attention: [
        (
            network(),
            mistakes_in(
                "weight_in",
                torch.zeros(7),
                [(6,), (7, 1)],
                "weight_in and bias_in must both have shape (hidden,)",
            ),
        ),
        (
            network(),
            mistakes_in(
                "bias_in",
                torch.zeros(7),
                [(6,), (1,)],
                "weight_in and bias_in must both have shape (hidden,)",
            ),
        ),
        (
            network(),
            mistakes_in(
                "weight_out",
                torch.zeros(7, D),
                [(8, 7), (6, 8), (7,)],
                "weight_out must have shape (hidden, head_dim) = (7, 8)",
            ),
        ),
    ],
    ops.forgetting_attention: [
        (
            {},
            mistakes_in(
                "log_f",
                torch.zeros(B, H, T),
                BAD_GATES,
                "log_f must have shape (batch, query heads, keys) = (2, 4, 5)",
            ),
        )
    ],
}


@pytest.mark.parametrize(
    ("op", "given", "fragments"),
    [
        pytest.param(op, {**base, **changed}, fragments, id=f"{op.__name__} {fragments[-1]} {n}")
        for op, parameters in OF_ONE_OP.items()
        for n, (base, mistakes) in enumerate(parameters)
        for changed, fragments in mistakes
    ],
)
def test_an_op_checks_its_own_parameters(op, given, fragments):
    refused(op, operands(**given), *fragments)


@pytest.mark.parametrize(
    ("op", "name", "value"),
    [
        (ops.cope_attention, "gate_scale", float("inf")),
        (ops.cope_attention, "position_scale", None),
        (ops.cope_alibi_attention, "gate_scale", True),
        (ops.cope_mlp_attention, "gate_scale", "1"),
        (ops.cope_mlp_attention, "max_position", "64"),
    ],
)
def test_scales_are_numbers(op, name, value):
    message = f"{name} must be a finite number, got {value!r}"
    refused(op, operands(**EVERY_OP[op], **{name: value}), message)


LIKE_TOKENS = {
    "gate_keys": ((B, G, T, D), [(B, H, T, D), (B, G, S, D), (B, G, T, V), (G, T, D)]),
    "position_query": ((B, H, S, D), [(B, G, S, D), (B, H, T, D), (B, H, S, V), (H, S, D)]),
}


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (ops.cope_attention, "gate_keys"),
        (ops.cope_alibi_attention, "gate_keys"),
        (ops.cope_mlp_attention, "gate_keys"),
        (ops.cope_attention, "position_query"),
    ],
)
def test_what_stands_in_for_tokens_is_like_them(op, name):
    good, bad_shapes = LIKE_TOKENS[name]
    base = EVERY_OP[op]
    op(**operands(**base, **{name: torch.zeros(good)}))
    for bad in bad_shapes:
        refused(
            op,
            operands(**base, **{name: torch.zeros(bad)}),
            f"{name} must have shape",
            f"= {good}, got {bad}",
        )
    refused(
        op,
        operands(**base, **{name: torch.zeros(good).double()}),
        f"{name} must have the dtype of query, torch.float32",
        "got torch.float64",
    )
    refused(
        op,
        operands(**base, **{name: torch.zeros(good, device="meta")}),
        f"{name} must be on the device of query, cpu",
        "got meta",
    )


@pytest.mark.parametrize(
    ("tokens", "given", "expected"),
    [
        (torch.float16, torch.float16, torch.float32),
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.bfloat16, torch.float64, torch.float32),
        (torch.float32, torch.bfloat16, torch.float32),
        (torch.float64, torch.float32, torch.float64),
    ],
    ids=str,
)
def test_a_parameter_comes_in_the_precision_of_sums(tokens, given, expected):
    query, table = torch.zeros(1, 1, 1, 1, dtype=tokens), torch.ones(3, dtype=given)
    assert shapes.parameter("table", table, query).dtype == expected


def test_check_shape_names_every_shape_that_fits():
    with pytest.raises(
        UsageError, match=r"^x must have shape A or AB = \(2,\) or \(2, 3\), got \(4,\)$"
    ):
        shapes.check_shape("x", torch.zeros(4), (2,), (2, 3), axes="A or AB")
    shapes.check_shape("x", torch.zeros(2, 3), (2,), (2, 3), axes="A or AB")
