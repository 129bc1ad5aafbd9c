"""Contextual position encoding: a key's position is how many counted tokens lie between.

Golovneva, Wang, Weston, Sukhbaatar 2024, "Contextual Position Encoding: Learning to Count What's
Important", arXiv 2405.18719.
"""

from typing import Any

import torch
from torch import Tensor, nn

from milepost import ops
from milepost.encoding import Encoding, Host, Operands, Positions
from milepost.encodings.none import NoEncoding
from milepost.errors import UsageError, unknown

CONVENTIONS = ("listing", "equations", "released")


def scales(convention: str, head_dim: int) -> dict[str, float]:
    """The op's scales for each way in which the publications divide by √D."""
    if convention == "listing":
        return {}
    if convention == "equations":
        return {"scale": 1.0}
    if convention == "released":
        return {"position_scale": head_dim**-0.5}
    raise unknown("convention", convention, CONVENTIONS)


def only_first(stack: list[Encoding]) -> list[Encoding]:
    """The stack with every layer but the first left without an encoding."""
    return stack[:1] + [NoEncoding(stack[0].host)] * (len(stack) - 1)


class Cope(Encoding):
    """g_ij = σ(q_i·k_j), p_ij = min(Σ_{k=j}^{i} g_ik, p_max), s_ij = q_i·k_j / √D + q_i·e[p_ij].

    e is a table of p_max + 1 vectors, shared by the heads, linearly interpolated, and zero at
    the start, so that a fresh model has no position encoding at all. `milepost.ops.cope_attention`
    has the equations (3 to 9).

    The paper leaves four things open, decided here with the authors' released code in hand: the
    position counts the query's own token; interpolation weights are Listing 1's (Eqs. 5 and 8
    print them swapped); gates see the scaled logits; each layer has its own table.

    Options:
        p_max: the largest position; the table has one row more. The paper takes 64 for text of
            1024 tokens; its released code for counting takes the whole length.
        shared: one table for all layers, which the paper's language models use (Table 8).
        sep_keys: gates from keys of their own, k_j = W_g x_j.
        val_gates: gates from the values, g_ij = σ(q_i·v_j).
        first_layer_only: the other layers have no position encoding (Table 7).
        convention: of scaling: "listing" (1/√D on q·k, none on q·e), "equations" (none at all,
            as Eqs. 3 and 9 are printed), or "released" (1/√D on both).
    """

    paper = "Golovneva et al. 2024, arXiv 2405.18719"
    changes = "adds q·e[p] to the logits, p a sum of gates"
    op_name = "cope"
    per_layer = True
    variants = (
        {"shared": True},
        {"sep_keys": True},
        {"val_gates": True},
        {"first_layer_only": True},
        {"convention": "equations"},
        {"convention": "released", "p_max": 3},
    )

    def __init__(
        self,
        host: Host,
        *,
        p_max: int = 64,
        shared: bool = False,
        sep_keys: bool = False,
        val_gates: bool = False,
        first_layer_only: bool = False,
        convention: str = "listing",
    ) -> None:
        super().__init__(host)
        if p_max < 1:
            raise UsageError(f"p_max must be a whole number above 0, got {p_max}")
        if sep_keys and val_gates:
            raise UsageError("sep_keys and val_gates both say where gates come from: choose one")
        self.table = nn.Parameter(torch.zeros(p_max + 1, host.head_dim))
        width = host.key_heads * host.head_dim
        self.gate_key = nn.Linear(host.dim, width, bias=False) if sep_keys else None
        self.val_gates = val_gates
        self.scales = scales(convention, host.head_dim)

    @classmethod
    def stack(cls, host: Host, **options: Any) -> list[Encoding]:
        """A layer has its own table and gate keys; `shared` makes the table one parameter."""
        layers = super().stack(host, **options)
        if options.get("shared"):
            for layer in layers[1:]:
                layer.table = layers[0].table
        return only_first(layers) if options.get("first_layer_only") else layers

    def op(self, *, value: Tensor, **operands: Any) -> Tensor:
        """CoPE attention, with a bias where another encoding beside it has one.

        With val-gates, the values that are cached anyway are the gate keys.
        """
        if self.val_gates:
            operands["gate_keys"] = value
        attend = ops.cope_bias_attention if "bias" in operands else ops.cope_attention
        return attend(value=value, **operands)

    def encode(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        x: Tensor,
        positions: Positions,
        state: Any,
    ) -> Operands:
        """Hand over the table, and the gate keys if they are their own."""
        memory = {"key": key, "value": value}
        if self.gate_key is not None:
            gate_keys = self.gate_key(x).unflatten(-1, (self.host.key_heads, -1))
            memory["gate_keys"] = gate_keys.transpose(1, 2)
        return Operands(query, memory, {"table": self.table, **self.scales})
