"""Shifted sparse attention: RoPE whose training attends within groups, half of the heads shifted.

Chen, Qian, Tang, Lai, Liu, Han, Jia 2023, "LongLoRA: Efficient Fine-tuning of Long-Context Large
Language Models", arXiv 2309.12307, Sec. 3.2 (S²-Attn) and Fig. 2.
"""

from typing import Any

import torch
from torch import Tensor

from milepost import ops
from milepost.encoding import Encoding, Host, Operands, Positions
from milepost.encodings.rope import Rope
from milepost.errors import UsageError


def group_starts(length: int, groups: int, shifted: bool, device: torch.device) -> Tensor:
    """The first token of each token's group, (length,).

    A group has ⌈length / groups⌉ tokens; shifted ones begin half a group later, after half a group.
    """
    size = -(-length // groups)
    first_cut = size // 2 if shifted else 0
    column = torch.arange(length, device=device)
    return ((column - first_cut) // size * size + first_cut).clamp(min=0)


def key_heads_of(tensor: Tensor, first: int, last: int, heads: int) -> Tensor:
    """Of keys or values (B, G, T, D) what the query heads `first` … `last` − 1 read.

    They are a slice where the cut falls between key heads or within one, as it does for G even and
    for G = 1. Elsewhere a key head on both sides of the cut has another number of query heads than
    the rest, and each query head gets a copy of its own.
    """
    group = heads // tensor.shape[1]
    if first // group == (last - 1) // group or (first % group == 0 and last % group == 0):
        return tensor[:, first // group : -(-last // group)]
    return tensor.repeat_interleave(group, dim=1)[:, first:last]


class ShiftedSparse(Encoding):
    """RoPE; in training token i attends to the tokens j ≤ i of its own group alone.

    S tokens make groups of G = ⌈S / groups⌉. The first half of the heads has groups that begin at
    0, G, 2G, …; the other half has cuts at G/2, 3G/2, …, so that what one half of the heads keeps
    apart the other half joins from layer to layer. In evaluation every token attends to all before
    it: plain `rope`, whose checkpoints load here and the other way round.

    Nothing wraps around. The paper's figure and listing roll the sequence by half a group, and so
    does the released code without FlashAttention: its first half group then shares a group with
    the last one, and sees it, which is the future. The paper says that a mask would prevent that.
    The released code with FlashAttention cuts the shifted heads as is done here, with half a
    group at either end.

    S is the length of the rows that the model is given. What padding, packed documents or a window
    hide stays hidden, so that groups and documents both cut.

    Options:
        groups: into how many groups a sequence is cut; a quarter of the length each in the paper.
        base: as in `rope`; None for 10000, or a pretrained model's own angles.
    """

    paper = "Chen et al. 2023, arXiv 2309.12307"
    changes = "rotates queries and keys, and in training attends within groups"
    variants = ({"groups": 2},)

    def __init__(self, host: Host, *, groups: int = 4, base: float | None = None) -> None:
        super().__init__(host)
        if groups < 2:
            raise UsageError(
                f"groups must be at least 2, got {groups}: 4 is the paper's, and rope has no groups"
            )
        if host.heads < 2:
            raise UsageError(
                f"shifted-sparse has two kinds of heads, got heads = {host.heads}: choose 2 or more"
            )
        self.groups = groups
        self.rope = Rope.of(host, base=base)

    def begin(self, x: Tensor, positions: Positions) -> tuple[Tensor, Any]:
        """RoPE's state."""
        return self.rope.begin(x, positions)

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
        """Rotate queries and keys."""
        return self.rope.encode(query, key, value, x=x, positions=positions, state=state)

    def op(
        self,
        *,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        start: Tensor | None,
        backend: str,
    ) -> Tensor:
        """Softmax attention: over all keys in evaluation, over each half's groups in training."""
        if not self.training:
            return ops.softmax_attention(query, key, value, start=start, backend=backend)
        B, H, S, _ = query.shape
        if key.shape[2] != S:
            raise UsageError(
                f"shifted-sparse cuts the whole sequence into groups in training mode, got a cache "
                f"of {key.shape[2] - S} tokens beside it: call eval() on the model"
            )
        halves = []
        for shifted, first, last in ((False, 0, H // 2), (True, H // 2, H)):
            begin = group_starts(S, self.groups, shifted, query.device).expand(B, S)
            attended = ops.softmax_attention(
                query[:, first:last],
                key_heads_of(key, first, last, H),
                key_heads_of(value, first, last, H),
                start=begin if start is None else torch.maximum(begin, start),
                backend=backend,
            )
            halves.append(attended)
        return torch.cat(halves, dim=1)
