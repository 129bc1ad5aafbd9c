"""One cell of a table: an op, its gates and sizes.

There are 16 heads, and so many sequences that these have 16384 tokens together, or one that is
longer: enough for every multiprocessor of a large GPU. Decoding, the caches have 131072 keys.
"""

from dataclasses import dataclass
from typing import Any

import torch

from milepost.bench.cases import HALF, NEVER, SUBJECTS, TYPICAL, Operands, Shape, operands

HEADS = 16
TOKENS = 16384
CACHED = 131072
GATES = (TYPICAL, HALF, NEVER)
BACKWARD = "backward"

# Products of matrices: two in the forward, five in the backward
BACKWARD_WORK = 2.5


def gates_of(op: str) -> tuple[str, ...]:
    """The kinds of gates that an op is measured with."""
    return GATES if len(SUBJECTS[op].gates) > 1 else (TYPICAL,)


@dataclass(frozen=True)
class Cell:
    """An op, its gates and sizes; `others` are who takes part beside milepost, plain and SDPA."""

    op: str
    gates: str
    head_dim: int
    keys: int
    decode: bool = False
    others: tuple[str, ...] = ()

    @property
    def shape(self) -> Shape:
        """All the tokens as queries; decoding, only the newest."""
        tokens = CACHED if self.decode else TOKENS
        batch = max(1, tokens // self.keys)
        queries = 1 if self.decode else self.keys
        return Shape(batch, HEADS, HEADS, queries, self.keys, self.head_dim)

    @property
    def label(self) -> str:
        """The cell in a line of text."""
        gates = f", {self.gates} gates" if len(gates_of(self.op)) > 1 else ""
        decode = ", decoding" if self.decode else ""
        return f"{self.op}{gates}{decode}, D={self.head_dim}, T={self.keys}"

    @property
    def pairs(self) -> float:
        """Pairs of query and key that see each other, over batch and heads."""
        shape = self.shape
        return shape.B * shape.H * shape.S * shape.T / (1 if self.decode else 2)

    def flops(self, direction: str) -> float:
        """Floating-point operations of the products of matrices that plain attention needs."""
        forward = 4 * self.pairs * self.head_dim
        work = {"forward": 1.0, BACKWARD: BACKWARD_WORK, "forward+backward": 1 + BACKWARD_WORK}
        return forward * work[direction]

    def operands(self, dtype: torch.dtype, device: str) -> Operands:
        """The operands, on the device."""
        return operands(self.op, self.gates, self.shape, dtype, device=device)

    def fields(self) -> dict[str, Any]:
        """The cell as JSON."""
        return {
            "label": self.label,
            "op": self.op,
            "gates": self.gates,
            "head_dim": self.head_dim,
            "keys": self.keys,
            "queries": self.shape.S,
            "batch": self.shape.B,
            "heads": self.shape.H,
            "decode": self.decode,
        }
