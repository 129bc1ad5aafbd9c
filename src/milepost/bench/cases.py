"""An op with its operands, at a length, a head_dim and a number of threads.

Contextual encodings let a kernel stop early: past the last row of a table every position is the
same, behind closed forget gates nothing is left to weigh, and a stick can be used up. How much
that saves is a property of the gates, so such an op is measured twice, on GPUs three times:

    typical             query, key and value are N(0, 1), as after a normalisation. Half of each
                        key counts, so that 65 positions are used up after about 130 keys, and a
                        stick after about 20. A forget gate is σ(N(2, 1)), which leaves 1/1000
                        after about 45 tokens.
    never saturating    by the oldest key, half of the positions are used, e⁻⁴ of the stick is
                        left, or the forget gates have taken 2·10⁻⁴ per token at most.
    half open           every gate is 1/2: queries use one half of the axes and keys the other, so
                        that every logit is 0, or every forget gate is 1/2.

Never saturating is a construction in query and key: their first axis is the same number for every
query, and for every key, and moves all logits to log(wanted / keys); the other axes are halved, so
that the logits stay close to that. The shift drops out of the softmax, but not out of the gates.

Operands beside these, in fp32 whatever the dtype of the queries, as parameters are in training:

    bias            −m_h · (i − j), ALiBi's table, an entry for every distance
    bias_dense      the same for each head and pair, (1, H, S, T)
    relative, cope  a table of 65 rows of N(0, 0.02²), shared by the heads
    cope_separate   the same; gate keys, and queries for positions, drawn as keys and queries are,
                    which then make the gates in their place; and a table of distances
    cope_alibi      ALiBi's slopes, negated: p grows towards the past
    forgetting      log f, (B, H, T)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from milepost import ops

TYPICAL = "typical"
NEVER = "never saturating"
HALF = "half open"

BATCH, HEADS = 1, 8
TABLE_ROWS = 65
TABLE_SPREAD = 0.02

# What the gates of a row add up to at most where they never saturate: of a table's positions the
# half, of a stick's −log(remainder) this
POSITIONS_SHARE = 0.5
STICK_SPENT = 4.0
FORGOTTEN_PER_TOKEN = 2e-4


@dataclass(frozen=True)
class Shape:
    """The axes of a call (`milepost.shapes`), and the rows of its tables."""

    B: int
    H: int
    G: int
    S: int
    T: int
    D: int
    rows: int = TABLE_ROWS


@dataclass(frozen=True)
class Case:
    """One cell of a table: an op, its gates, and the sizes."""

    op: str
    gates: str
    head_dim: int
    keys: int
    threads: int
    decode: bool = False

    @property
    def shape(self) -> Shape:
        """All the tokens as queries; decoding, only the newest."""
        queries = 1 if self.decode else self.keys
        return Shape(BATCH, HEADS, HEADS, queries, self.keys, self.head_dim)


Operands = dict[str, Any]
# Not parameters: in the dtype that is measured
OF_TOKENS = ("query", "key", "value", "gate_keys", "position_query")
Draw = Callable[..., Tensor]


@dataclass(frozen=True)
class Subject:
    """An op that can be measured: the call, its operands beside q, k and v, and its gates."""

    call: Callable[..., Any]
    extra: Callable[[Shape, str, Draw], Operands]
    gates: tuple[str, ...] = (TYPICAL,)
    # what the gates of a row may add up to; None where query and key are no gates
    room: Callable[[Shape], float] | None = None


def _nothing(shape: Shape, gates: str, draw: Draw) -> Operands:
    return {}


def alibi_slopes(heads: int) -> Tensor:
    """m_h = 2^(−8h/H), h from 1 on."""
    return 2.0 ** (-8 * torch.arange(1, heads + 1) / heads)


def _bias(shape: Shape, gates: str, draw: Draw) -> Operands:
    return {"bias": -alibi_slopes(shape.H)[:, None] * torch.arange(shape.T)}


def _bias_dense(shape: Shape, gates: str, draw: Draw) -> Operands:
    distances = torch.arange(shape.T - shape.S, shape.T)[:, None] - torch.arange(shape.T)
    return {"bias": (-alibi_slopes(shape.H)[:, None, None] * distances)[None]}


def _table(shape: Shape, gates: str, draw: Draw) -> Operands:
    return {"table": TABLE_SPREAD * draw(shape.rows, shape.D)}


def _separate(shape: Shape, gates: str, draw: Draw) -> Operands:
    return {
        "table": TABLE_SPREAD * draw(shape.rows, shape.D),
        "gate_keys": draw(shape.B, shape.G, shape.T, shape.D),
        "position_query": draw(shape.B, shape.H, shape.S, shape.D),
        "relative_table": TABLE_SPREAD * draw(shape.rows, shape.D),
    }


def _slopes(shape: Shape, gates: str, draw: Draw) -> Operands:
    return {"slopes": -alibi_slopes(shape.H)}


def _log_f(shape: Shape, gates: str, draw: Draw) -> Operands:
    noise = draw(shape.B, shape.H, shape.T)
    if gates == NEVER:
        return {"log_f": -FORGOTTEN_PER_TOKEN * noise.sigmoid()}
    if gates == HALF:
        return {"log_f": torch.full_like(noise, -math.log(2))}
    return {"log_f": F.logsigmoid(noise + 2)}


def _positions(shape: Shape) -> float:
    return POSITIONS_SHARE * (shape.rows - 1)


SUBJECTS = {
    "softmax": Subject(ops.softmax_attention, _nothing),
    "bias": Subject(ops.bias_attention, _bias),
    "bias_dense": Subject(ops.bias_attention, _bias_dense),
    "relative": Subject(ops.relative_attention, _table),
    "cope": Subject(ops.cope_attention, _table, (TYPICAL, NEVER), _positions),
    "cope_separate": Subject(ops.cope_attention, _separate, (TYPICAL, NEVER), _positions),
    "cope_alibi": Subject(ops.cope_alibi_attention, _slopes, (TYPICAL, NEVER), _positions),
    "forgetting": Subject(ops.forgetting_attention, _log_f, (TYPICAL, NEVER)),
    "stick_breaking": Subject(
        ops.stick_breaking_attention, _nothing, (TYPICAL, NEVER), lambda shape: STICK_SPENT
    ),
}


def move_logits(query: Tensor, key: Tensor, logit: float) -> None:
    """Make q·k/√D `logit` plus little, in place: one axis holds constants, the rest is halved."""
    constant = math.sqrt(abs(logit) * math.sqrt(query.shape[-1]))
    query.mul_(0.5)[..., 0] = constant
    key.mul_(0.5)[..., 0] = math.copysign(constant, logit)


def keep_apart(query: Tensor, key: Tensor) -> None:
    """Make q·k zero, in place, without a vector of zeros: each has its half of the axes."""
    half = query.shape[-1] // 2
    query[..., half:] = 0
    key[..., :half] = 0


def operands(
    op: str, gates: str, shape: Shape, dtype: torch.dtype, seed: int = 0, device: str = "cpu"
) -> Operands:
    """The operands of a call; the same numbers for the same arguments."""
    generator = torch.Generator(device).manual_seed(seed)

    def draw(*size: int) -> Tensor:
        return torch.randn(size, generator=generator)

    subject = SUBJECTS[op]
    with torch.device(device):
        query = draw(shape.B, shape.H, shape.S, shape.D)
        key = draw(shape.B, shape.G, shape.T, shape.D)
        value = draw(shape.B, shape.G, shape.T, shape.D)
        given = {"query": query, "key": key, "value": value, **subject.extra(shape, gates, draw)}
        of_gates = given.get("position_query", query), given.get("gate_keys", key)
        if gates == NEVER and subject.room is not None:
            # far below 0, σ(x) and softplus(x) are both eˣ; −1 keeps them close in short rows
            move_logits(*of_gates, min(math.log(subject.room(shape) / shape.T), -1.0))
        if gates == HALF and subject.room is not None:
            keep_apart(*of_gates)
        return given | {name: given[name].to(dtype) for name in OF_TOKENS if name in given}


def floating(given: Operands) -> dict[str, Tensor]:
    """The operands that have gradients."""
    return {
        name: operand
        for name, operand in given.items()
        if isinstance(operand, Tensor) and operand.dtype.is_floating_point
    }
