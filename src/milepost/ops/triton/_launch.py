"""The launches of the kernels. Imported where a kernel runs: it needs Triton."""

import math
from functools import cache
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from milepost.ops import triton
from milepost.ops.inputs import Inputs
from milepost.ops.triton import _scan
from milepost.ops.triton._blocks import Blocks
from milepost.ops.triton._kernels.backward_key import backward_key
from milepost.ops.triton._kernels.backward_query import backward_query
from milepost.ops.triton._kernels.carries import carries
from milepost.ops.triton._kernels.decode import decode as decode_kernel
from milepost.ops.triton._kernels.decode import join, scores
from milepost.ops.triton._kernels.forward import forward as forward_kernel
from milepost.ops.triton._kernels.operands import Backward, Constants, Given, Policy, Rest
from milepost.ops.triton._kernels.policies import (
    cope,
    cope_alibi,
    dense,
    distance,
    forgetting,
    softmax,
)
from milepost.ops.triton._kernels.skipping import needed as needed_kernel
from milepost.ops.triton._operands import decay_in_tile, operands, power_of_2, strided
from milepost.ops.triton._scan import LOG2_E
from milepost.ops.triton._table_gradients import finish, room

POLICIES = {
    kind: Policy(policy.logits, policy.shift)
    for kind, policy in {
        "softmax": softmax,
        "bias_table": distance,
        "bias_dense": dense,
        "relative": distance,
        "cope": cope,
        "cope_alibi": cope_alibi,
        "forgetting": forgetting,
        "stick_breaking": softmax,  # its weights are its own: it has no logits
    }.items()
}
CHUNK = 2


def launch(kernel: Any, grid: tuple[int, int, int], *arguments: Any, **options: Any) -> None:
    """Every launch goes through here."""
    if not triton.interpreted():  # which knows no options of compilers
        options["enable_fp_fusion"] = True
    kernel[grid](*arguments, **options)


def constants(given: Inputs, blocks: Blocks) -> Constants:
    """What a kernel with these blocks is compiled for."""
    D, V = given.query.shape[3], given.value.shape[3]
    return _constants(given.kind, given.approximate, D, V, blocks)


@cache
def _constants(kind: str, approximate: bool, D: int, V: int | None, blocks: Blocks) -> Constants:
    found = Constants(
        COUNTS=kind in ("cope", "cope_alibi"),
        STICK=kind == "stick_breaking",
        APPROXIMATE=approximate,
        # fp32 as three products of tf32 numbers, which lose nothing; AMD has fp32 products
        PRECISION="tf32x3" if torch.version.hip is None else "ieee",
        D=D,
        V=V,
        BLOCK_D=power_of_2(D),
        BLOCK_V=None if V is None else power_of_2(V),
        M=blocks.M,
        N=blocks.N,
        STEP=blocks.step,
    )
    return Constants(*map(tl.constexpr, found))


def without_values(given: Inputs, blocks: Blocks) -> Constants:
    """Of a kernel that meets none: what is compiled is then the same for all widths of them."""
    return _constants(given.kind, given.approximate, given.query.shape[3], None, blocks)


def needed(given: Inputs) -> Tensor | None:
    """(B, H, S): the oldest key whose weight may not be left out, where decay is forgotten."""
    if given.kind != "forgetting" or not given.skip:
        return None
    assert given.decay is not None
    B, H, S, D = given.query.shape
    G, T = given.key.shape[1:3]
    N = 64
    count = math.ceil(T / N)
    norm = torch.linalg.vector_norm(given.key, dim=-1, dtype=torch.float32)
    norm = torch.nn.functional.pad(norm, (0, count * N - T)).unflatten(-1, (count, N)).amax(-1)
    decay = (given.decay * LOG2_E).contiguous()
    lowest = torch.nn.functional.pad(decay, (0, count * N - T), value=math.inf)
    lowest = lowest.unflatten(-1, (count, N)).amin(-1)
    found = torch.empty(B, H, S, dtype=torch.int32, device=given.query.device)
    M = 64 if D * given.query.element_size() <= 512 else 32
    launch(
        needed_kernel,
        (math.ceil(S / M), H, B),
        strided(given.query),
        strided(given.key),
        decay,
        norm.cummax(-1).values,
        lowest.cummin(-1).values,
        found,
        given.scale * LOG2_E,
        math.log2(T),
        H // G,
        S,
        T,
        D=D,
        M=M,
        N=N,
        num_warps=8,
    )
    return found


# A few rows leave most of a GPU idle, unless their keys are split: over so many programs at most
MOST_PACKED_ROWS, FEWEST_KEYS, PROGRAMS, MOST_PARTS = 32, 512, 256, 64


def splits(given: Inputs) -> bool:
    """Whether the keys are split over programs: decoding."""
    rows = given.query.shape[2] * given.query.shape[1] // given.key.shape[1]
    return rows <= MOST_PACKED_ROWS and given.key.shape[2] >= FEWEST_KEYS


def decode(given: Inputs, out: Tensor, residual: Tensor) -> None:
    """Write the results of the forward, from parts of the keys."""
    B, H, S, _ = given.query.shape
    G, T = given.key.shape[1:3]
    sizes = _scan._blocks(given, "decode")
    sticks, counts = given.kind == "stick_breaking", given.kind in ("cope", "cope_alibi")
    sizes = sizes._replace(M=max(sizes.M, power_of_2(S * H // G)))
    count = math.ceil(T / sizes.N)
    most = min(MOST_PARTS, max(PROGRAMS // (B * G), 1))
    share = 1 << (math.ceil(count / most) - 1).bit_length()  # few shares, as each is compiled
    parts = math.ceil(count / share)
    read = operands(given, sizes.N, needed(given))

    def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=given.query.device)

    const = constants(given, sizes)
    products = counted = None
    if counts:
        products, counted = empty(B, H, S, T), empty(parts, B, H, S, dtype=torch.int64)
        launch(
            scores,
            (parts, G, B),
            read,
            products,
            counted,
            without_values(given, sizes),
            SHARE=share,
            **sizes.options,
        )
    out_parts = empty(parts, B, H, S, given.value.shape[3])
    tops, totals = empty(parts, B, H, S), empty(parts, B, H, S)
    launch(
        decode_kernel,
        (parts, G, B),
        read,
        products,
        counted,
        out_parts,
        tops,
        totals,
        POLICIES[given.kind],
        const,
        SHARE=share,
        **sizes.options,
    )
    launch(
        join,
        (B * H * S, 1, 1),
        out_parts,
        tops,
        totals,
        out,
        residual,
        parts,
        B * H * S,
        STICK=sticks,
        V=given.value.shape[3],
        BLOCK_V=power_of_2(given.value.shape[3]),
        PARTS=1 << (parts - 1).bit_length(),
        num_warps=4,
    )


def forward(given: Inputs, out: Tensor, residual: Tensor) -> None:
    """Write the results of the forward."""
    if splits(given):
        decode(given, out, residual)
        return
    B, H, S, _ = given.query.shape
    sizes = _scan._blocks(given, "forward")
    launch(
        forward_kernel,
        (math.ceil(S / sizes.M), H, B),
        operands(given, sizes.N, needed(given)),
        out,
        residual,
        POLICIES[given.kind],
        constants(given, sizes),
        CHUNK=CHUNK,
        **sizes.options,
    )


def earliest(band: Tensor, rows: int) -> Tensor:
    """(B, H, tiles): the least in each tile of so many rows."""
    count = math.ceil(band.shape[2] / rows)
    last = torch.iinfo(band.dtype).max
    padded = torch.nn.functional.pad(band, (0, count * rows - band.shape[2]), value=last)
    return padded.unflatten(-1, (count, rows)).amin(-1)


def newest_row(oldest: Tensor, count: int) -> Tensor:
    """(B, H, count): the newest row that comes as far as the tile, from how far each row goes."""
    S = oldest.shape[2]
    rows = torch.arange(S, dtype=torch.int32, device=oldest.device).expand(oldest.shape)
    none = torch.full((*oldest.shape[:2], count), -1, dtype=torch.int32, device=oldest.device)
    ends = none.scatter_reduce(-1, oldest.long().clamp(0, count - 1), rows, "amax")
    return ends.cummax(-1).values.contiguous()


def backward(
    given: Inputs,
    grads: dict[str, Tensor],
    out: Tensor,
    residual: Tensor,
    grad_out: Tensor,
    grad_residual: Tensor | None,
) -> None:
    """Write the gradients."""
    B, H, S, D = given.query.shape
    G, T = given.key.shape[1:3]
    V = given.value.shape[3]
    counts, sticks = given.kind in ("cope", "cope_alibi"), given.kind == "stick_breaking"
    rows, columns = (_scan._blocks(given, f"backward_{of}") for of in ("query", "key"))
    band_rows, band_columns = rows, columns
    if counts or sticks:
        band_rows, band_columns = (_scan._blocks(given, f"band_{of}") for of in ("query", "key"))
    if sticks:
        rows, columns = band_rows, band_columns
    # The bands of kernels with other tiles have the same ends
    group = max(rows.N, columns.N, band_columns.N) if counts else columns.N
    needs = needed(given)
    read = operands(given, columns.N, needs)

    def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=given.query.device)

    back = Backward(
        out=out,
        residual=residual,
        grad_out=strided(grad_out),
        grad_residual=None if grad_residual is None else grad_residual.contiguous(),
        delta=empty(B, H, S),
        carry=None,
        band=None,
        band_begin=None,
        tile=rows.M,
        older=None,
        band_reach=None,
        reach=_reach(read, B, H, group),
        keys=group,
        rows=max(columns.M, band_columns.M) if counts else columns.M,
        rest=None,
    )
    if counts or sticks:
        count = math.ceil(T / band_rows.N)
        back = back._replace(
            carry=empty(B, H, count, S, dtype=torch.float32 if sticks else torch.int64),
            band=empty(B, H, S, dtype=torch.int32),
            older=empty(B, H, count, S),
        )
        launch(
            carries,
            (math.ceil(S / band_rows.M), H, B),
            read,
            back.carry,
            back.band,
            # the blocks of the band, so that both kernels make the very same gates
            without_values(given, band_rows),
            GROUP=group,
            **band_rows.options,
        )
        back = back._replace(
            band_begin=earliest(back.band, rows.M),
            band_reach=newest_row(back.band // group, math.ceil(T / group)),
        )
    if counts:
        rest = Rest(empty(B, H, S, D), empty(B, G, T, D), empty(B, G, T, V), empty(B, H, S))
        back = back._replace(rest=rest)
    written = room(given, grads)
    parts = {"all": (rows, columns)}
    if counts:
        parts = {"rest": (rows, columns), "band": (band_rows, band_columns)}
    elif sticks:
        parts = {"band": (band_rows, band_columns)}
    for part, (of_rows, of_columns) in parts.items():
        for kernel, blocks, grid in (
            (backward_query, of_rows, (math.ceil(S / of_rows.M), H, B)),
            (backward_key, of_columns, (math.ceil(T / of_columns.N), G, B)),
        ):
            launch(
                kernel,
                grid,
                _for_tiles(read, given, blocks.N),
                back,
                written,
                POLICIES[given.kind],
                constants(given, blocks),
                PART=part,
                **({"BAND_N": band_rows.N} if kernel is backward_key else {}),
                **blocks.options,
            )
    finish(given, grads, written)


def _for_tiles(read: Given, given: Inputs, N: int) -> Given:
    """The operands for other tiles of keys: Λ within a tile is relative to its newest key."""
    if read.decay is None:
        return read
    return read._replace(decay_in_tile=decay_in_tile(read.decay, N))


def _reach(read: Given, B: int, H: int, group: int) -> Tensor | None:
    """(B, H, groups of keys): the newest row that sees or needs a key of the group."""
    if read.start is None and read.needed is None:
        return None
    oldest = read.needed
    if read.start is not None:
        start = read.start[:, None].expand(B, H, -1)
        oldest = start if oldest is None else torch.maximum(start, oldest)
    return newest_row(oldest // group, math.ceil(read.keys / group))
