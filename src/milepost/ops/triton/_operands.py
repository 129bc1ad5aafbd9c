"""Operands as the kernels read them: in base 2, and what they read of tables for each row."""

import math

import torch
from torch import Tensor

from milepost.ops.inputs import Inputs
from milepost.ops.triton._kernels.operands import Given, Strided
from milepost.ops.triton._scan import LOG2_E, NEVER, QUANTA, STICK_IS_SPENT


def power_of_2(width: int) -> int:
    """The width of a tile, as `tiles.padded` in a kernel."""
    return max(16, 1 << (width - 1).bit_length())


def strided(tensor: Tensor) -> Strided:
    """A tensor as a kernel reads it; an axis of length 1 that is shared has a stride of 0."""
    if tensor.stride(3) != 1:
        tensor = tensor.contiguous()
    return Strided(tensor, *tensor.stride()[:3])


def shared(tensor: Tensor) -> Strided:
    """The same, where batches or heads may share the tensor: then it is repeated."""
    at = strided(tensor)
    return at._replace(
        batch=at.batch if tensor.shape[0] > 1 else 0, head=at.head if tensor.shape[1] > 1 else 0
    )


def lookup(given: Inputs) -> Tensor | None:
    """(B, H, S, P + 1, 2): z at each whole count in base 2, and its slope up to the next."""
    if given.table is None:
        return None
    query, table = met_by_tables(given), with_steps(given.table)
    z = (given.position_scale * LOG2_E * query) @ table.mT
    return z.unflatten(-1, (-1, 2)).contiguous()


def met_by_tables(given: Inputs) -> Tensor:
    """The queries that tables are multiplied with."""
    query = given.query if given.position_query is None else given.position_query
    return query.float()


def with_steps(table: Tensor) -> Tensor:
    """e[0], e[1] − e[0], e[1], e[2] − e[1], …; the last step is 0."""
    table = table.float()
    steps = torch.cat([table.diff(dim=-2), torch.zeros_like(table[..., :1, :])], -2)
    return torch.stack([table, steps], -2).flatten(-3, -2)


def by_distance(given: Inputs) -> Strided | None:
    """What is added at each distance, in base 2."""
    if given.kind == "bias_table":
        assert given.bias is not None
        bias = given.bias.float().clamp(-2e38, 2e38) * LOG2_E
        bias = torch.where(given.bias.isinf(), given.bias.float(), bias).contiguous()
        return Strided(bias, 0, bias.stride(0), 0)
    if given.relative_table is None:
        return None
    return strided(LOG2_E * met_by_tables(given) @ given.relative_table.float().mT)


def decay_in_tile(decay: Tensor, N: int) -> Tensor:
    """Λ at the newest key of each tile of N, less Λ at the key."""
    T = decay.shape[2]
    newest = (torch.arange(T, device=decay.device) // N * N + N - 1).clamp(max=T - 1)
    return (decay[..., newest] - decay).float()


def operands(given: Inputs, N: int, needed: Tensor | None = None) -> Given:
    """What every kernel reads. N is the tile of keys of the kernels that it is for."""
    H, S = given.query.shape[1:3]
    G, T = given.key.shape[1:3]
    distance = by_distance(given)
    decay = None if given.decay is None else (given.decay * LOG2_E).contiguous()
    last = 0 if given.table is None else given.table.shape[-2] - 1
    settled: float | int = last * QUANTA if given.skip and given.kind == "cope" else NEVER
    if given.kind == "stick_breaking":
        settled = STICK_IS_SPENT if given.skip else math.inf
    separate = None if given.gate_keys is None else given.position_query
    dense = given.bias if given.kind == "bias_dense" else None
    return Given(
        query=strided(given.query),
        key=strided(given.key),
        value=strided(given.value),
        gate_query=None if separate is None else strided(separate),
        gate_key=None if given.gate_keys is None else strided(given.gate_keys),
        start=None if given.start is None else given.start.clamp(0, T).int().contiguous(),
        lookup=lookup(given),
        distance=distance,
        bias=None if dense is None else shared(dense.float()),
        slopes=None if given.slopes is None else given.slopes.float().contiguous(),
        decay=decay,
        decay_in_tile=None if decay is None else decay_in_tile(decay, N),
        needed=needed,
        last=last,
        full=last * QUANTA,
        beyond=0 if distance is None else furthest(given),
        settled=settled,
        lag=int(given.kind == "stick_breaking" and not given.attend_current),
        scale=given.scale * LOG2_E,
        gate_scale=given.gate_scale * LOG2_E,
        heads=H,
        group=H // G,
        queries=S,
        keys=T,
    )


def furthest(given: Inputs) -> int:
    """The last distance with an entry of its own; all beyond share it."""
    if given.kind == "bias_table":
        assert given.bias is not None
        return given.bias.shape[1] - 1
    assert given.relative_table is not None
    return given.relative_table.shape[-2] - 1
