"""What a fused backend is measured by: the reference in fp64, on the very numbers it was given."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from milepost import ops

from .cases import OPS, Case, Op, cast, cotangents, gradients, parts, table

# Relative errors, ‖found − exact‖ / ‖exact‖. A kernel works in fp32, its exponential is right to
# 2e-7, and its sums are short: of products over a head, and then of tiles.
OUTPUT, GRADIENT = 2e-6, 5e-6
SINGLE = torch.finfo(torch.float32).eps / 2  # one rounding
KINK = 1e-5  # how near to a whole number a count of CoPE may be for its slope to be compared

FUSED = {name: op for name, op in OPS.items() if name != "cope_mlp"}


def rows_in_tables(rows: int) -> dict[str, Op]:
    """The ops that have tables, with so many rows."""

    def biases(case: Case) -> dict[str, Any]:
        return {"bias": torch.randn(case.H, rows, dtype=torch.float64)}

    def vectors(case: Case) -> dict[str, Any]:
        return {"table": table(case, rows, per_head=True)}

    def counts(case: Case) -> dict[str, Any]:
        relative = table(case, rows + 1, per_head=True)
        return {"table": table(case, rows), "relative_table": relative}

    return {
        f"bias table of {rows}": replace(OPS["bias table"], extra=biases),
        f"relative of {rows}": replace(OPS["relative"], extra=vectors),
        f"cope of {rows}": replace(OPS["cope"], extra=counts),
    }


def on(backend: str, op: Op, **options: Any) -> Callable[..., Any]:
    """The op as that backend runs it."""

    def call(**given: Any) -> Any:
        return op.call(**{**given, **options}, backend=backend)

    return call


def single(op: Op, case: Case) -> dict[str, Any]:
    """Operands in fp32."""
    return drawn(op, case, torch.float32)


def drawn(op: Op, case: Case, dtype: torch.dtype) -> dict[str, Any]:
    """Operands, with tables and slopes as small as trained ones; away from CoPE's kinks."""
    for seed in range(1000):
        torch.manual_seed(seed)
        given = op.operands(case)
        for name in ("table", "relative_table", "slopes"):
            if name in given:
                given[name] *= 0.1
        given = cast(given, dtype)
        if op.call is not ops.cope_attention or away_from_kinks(cast(given, torch.float64)):
            return given
    raise AssertionError("every draw has a count at a whole number")


def counts(given: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """CoPE's p_ij (B, H, S, T), and which of them are of keys that a query sees."""
    query, key, start = given["query"], given["key"], given["start"]
    if given.get("gate_keys") is not None:
        key = given["gate_keys"]
        query = query if given.get("position_query") is None else given["position_query"]
    scale = given.get("scale")
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scale = scale if given.get("gate_scale") is None else given["gate_scale"]
    S, T = query.shape[2], key.shape[2]
    keys = torch.arange(T)
    seen = keys <= torch.arange(T - S, T)[:, None]
    if start is not None:
        seen = seen & (keys >= start[:, None, :, None])
    gates = (scale * query @ key.repeat_interleave(query.shape[1] // key.shape[1], 1).mT).sigmoid()
    gates = gates * seen
    return gates.flip(-1).cumsum(-1).flip(-1), seen.expand_as(gates)


def away_from_kinks(given: dict[str, Any]) -> bool:
    """Whether no count that reads the table is within KINK of a whole number, in fp64."""
    count, seen = counts(given)
    last = given["table"].shape[-2] - 1
    at_risk = seen & (count < last + KINK) & (last > 0)
    return not ((count - count.round()).abs() < KINK)[at_risk].any()


def exactly(op: Op, given: dict[str, Any]) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Results and gradients in fp64."""
    exact, call = cast(given, torch.float64), on("reference", op)
    return parts(call(**exact)), gradients(call, exact)


def sizes_of_terms(op: Op, given: dict[str, Any]) -> dict[str, float]:
    """How large the terms of each gradient are, where the gradient is what is left of them.

    A gradient sums, over pairs, ∂loss/∂logit times the logit's slope in the operand; the former is
    a_ij (do_i·v_j − do_i·o_i), and so a difference. What rounds in a row may add up, as do_i·o_i is
    in all of its pairs; rows round independently of each other: sums within a row, of sizes, and
    root mean squares over the rows.
    """
    given, call = cast(given, torch.float64), on("reference", op)
    query, key, value = (given[name] for name in ("query", "key", "value"))
    sharing, T = query.shape[1] // key.shape[1], key.shape[2]
    each_key = torch.eye(T, dtype=torch.float64).expand(*key.shape[:2], T, T)
    weights = parts(call(**given | {"value": each_key}))[0]
    results = parts(call(**given))
    grad, *grad_remainder = cotangents(results)
    of_pairs = weights * (grad.abs() @ value.abs().repeat_interleave(sharing, 1).mT)
    of_row = (grad * results[0]).abs().sum(-1, keepdim=True)
    terms = of_pairs + weights * of_row
    if grad_remainder:  # ∂loss/∂s_ij = u_ij − β_ij Σ u, and the remainder's share; β ≤ 1
        of_row = of_pairs.sum(-1) + (grad_remainder[0] * results[1]).abs()
        terms = of_pairs + of_row[..., None]

    def longest(name: str) -> float:
        found = given.get(name)
        return 0.0 if found is None else found.norm(dim=-1).max().item()

    q, k = longest("query"), longest("key")
    q_of_tables, k_of_gates = max(q, longest("position_query")), max(k, longest("gate_keys"))
    scale = query.shape[-1] ** -0.5 if given.get("scale") is None else abs(given["scale"])
    gate_scale = scale if given.get("gate_scale") is None else abs(given["gate_scale"])
    position_scale = abs(given.get("position_scale", 1.0))
    in_tables = position_scale * longest("table") + longest("relative_table")
    per_count = 2 * position_scale * q_of_tables * longest("table")
    if "slopes" in given:
        per_count = given["slopes"].abs().max().item()
    per_gate = per_count * gate_scale / 4 * T**0.5  # σ' ≤ 1/4; a count has up to T gates
    slopes = {
        "query": scale * k + in_tables + per_gate * k_of_gates,
        "position_query": in_tables + per_gate * k_of_gates,
        "key": scale * q + per_gate * q_of_tables,
        "gate_keys": per_gate * q_of_tables,
        "table": max(1, position_scale) * q_of_tables,
        "relative_table": q_of_tables,
        "bias": 1.0,
        "log_f": T**0.5,  # as many gates between
        "slopes": counts(given)[0] if "slopes" in given else 0.0,
    }
    sizes = {name: (terms * slope).sum(-1).norm().item() for name, slope in slopes.items()}
    return sizes | {"value": (weights * grad.norm(dim=-1, keepdim=True)).sum(-1).norm().item()}


def small_beside_their_terms(
    op: Op, given: dict[str, Any], *, of_terms: bool = False
) -> dict[str, float]:
    """The sizes of terms of the gradients that are compared with these: all if `of_terms`.

    It is for gradients that may be nothing beside their terms. Those of a slope and of the last
    entry of a table of biases, one number from nearly all pairs of a head, always may: over a row,
    ∂loss/∂logit sums to 0.
    """
    always = [name for name in ("slopes", "bias") if name in given and given[name].ndim <= 2]
    terms = sizes_of_terms(op, given) if of_terms or always else {}
    return terms if of_terms else {name: terms[name] for name in always}


def differences(
    found: tuple[tuple[Tensor, ...], dict[str, Tensor]],
    exact: tuple[tuple[Tensor, ...], dict[str, Tensor]],
    terms: dict[str, float],
    margins: dict[str, float] | None = None,
) -> dict[str, str]:
    """Which results and gradients are further from the exact ones than they may be, and how far.

    A gradient with `terms` may also be wrong by four roundings of its terms, and each by its own of
    `margins`.
    """
    wrong = {}

    def compare(name: str, one: Tensor, other: Tensor, relative: float, floor: float) -> None:
        assert one.shape == other.shape
        distance, size = (one.double() - other).norm().item(), other.norm().item()
        floor += (margins or {}).get(name, 0)
        if not distance <= relative * size + floor:
            wrong[name] = f"‖difference‖ {distance:.2e}, ‖exact‖ {size:.2e}"

    (out, *remainder), gradients = found
    (exact_out, *exact_remainder), exact_gradients = exact
    compare("out", out, exact_out, OUTPUT, 0)
    for one, other in zip(remainder, exact_remainder, strict=True):
        # Breaking stops once 2⁻²⁴ of the stick is left
        compare("remainder", one, other, OUTPUT, 2**-24 * other.numel() ** 0.5)
    assert gradients.keys() == exact_gradients.keys()
    for name, other in exact_gradients.items():
        floor = 4 * SINGLE * terms.get(name, 0)
        compare(name, gradients[name], other, GRADIENT, floor)
    return wrong
