"""Numbers: products of tiles, sums along keys, gates, counts.

`KEYS` is the axis of keys: 1, but for the gradients of keys beyond a band, where tiles lie the
other way round and it is 0.
"""

import os

import triton
import triton.language as tl
from triton.language.target_info import current_target
from triton.runtime.jit import constexpr_function

# The interpreter has no assembly, and its products take bits for numbers in bf16
INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")

# A gate is a multiple of 2⁻²², made of a multiple of 2⁻¹⁰ and a rest; both are fp16 numbers, and
# sums of 64 of either are fp32 numbers. So counts are exact, in any order.
QUANTA = tl.constexpr(4194304)  # 2²², of a whole count
QUANTUM = tl.constexpr(1 / 4194304)
ROUNDS_TO_2_22 = tl.constexpr(2.0)  # a gate added to it has its last bit at 2⁻²²
ROUNDS_TO_2_10 = tl.constexpr(12288.0)

LN_2 = tl.constexpr(0.6931471805599453)
MOST_OF_A_STICK = tl.constexpr(256.0)  # 2⁻²⁵⁶ of a stick is nothing


@constexpr_function
def is_cuda():
    """Whether the kernel is compiled for a GPU that takes PTX."""
    target = None if INTERPRETED.value else current_target()
    return target is not None and target.backend == "cuda"


@triton.jit
def dot(left, right, acc, PRECISION: tl.constexpr):
    """acc + left · right, in fp32."""
    if INTERPRETED:
        left = left.to(tl.float32)
        right = right.to(tl.float32)
    return tl.dot(left, right, acc, input_precision=PRECISION)


@triton.jit
def expand(vector, KEYS: tl.constexpr, OF_KEYS: tl.constexpr):
    """A vector over keys, or over queries, that broadcasts over a tile."""
    if (KEYS == 1) == OF_KEYS:
        return vector[None, :]
    else:
        return vector[:, None]


@triton.jit
def reciprocal(x):
    """1 / x, to one unit in the last place."""
    if is_cuda():
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return 1.0 / x


@triton.jit
def log2(x):
    """log₂ x, to 2⁻²² for x in [1, 2]."""
    if is_cuda():
        return tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.log2(x)


@triton.jit
def tanh(x):
    """tanh x, to 2⁻¹¹ where the device has an instruction for it."""
    if is_cuda():
        return tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return 2.0 / (1.0 + tl.exp2(-2.8853900817779268 * x)) - 1.0


@triton.jit
def make_gates(logits, APPROXIMATE: tl.constexpr):
    """σ of logits in base 2, in whole quanta: 2⁻²², or 2⁻¹⁰ if approximate."""
    if APPROXIMATE:
        gates = 0.5 + 0.5 * tanh(0.34657359027997264 * logits)
        return (gates + ROUNDS_TO_2_10) - ROUNDS_TO_2_10
    else:
        gates = reciprocal(1.0 + tl.exp2(-logits))
        return (gates + ROUNDS_TO_2_22) - ROUNDS_TO_2_22


@triton.jit
def quanta(gates, KEYS: tl.constexpr):
    """The sum of each row's gates, in quanta."""
    return tl.sum((gates * QUANTA).to(tl.int32), KEYS).to(tl.int64)


@triton.jit
def from_newest(N: tl.constexpr, KEYS: tl.constexpr, STRICT: tl.constexpr):
    """The triangle whose product with a tile sums, for each key, it and all newer ones."""
    a = tl.arange(0, N)[:, None]
    b = tl.arange(0, N)[None, :]
    if KEYS == 1:
        return (a > b if STRICT else a >= b).to(tl.float32)
    else:
        return (a < b if STRICT else a <= b).to(tl.float32)


@triton.jit
def _along_keys(tile, triangle, acc, KEYS: tl.constexpr, PRECISION: tl.constexpr):
    if KEYS == 1:
        return dot(tile, triangle, acc, PRECISION)
    else:
        return dot(triangle, tile, acc, PRECISION)


@triton.jit
def count(gates, carry, N: tl.constexpr, KEYS: tl.constexpr, APPROXIMATE: tl.constexpr):
    """Each key's count of gates, its own and all newer ones: the whole part, and what is above.

    `carry` is the count of newer tiles, in quanta.
    """
    triangle = from_newest(N, KEYS, False).to(tl.float16)
    zero = tl.zeros_like(gates)
    high = (gates + ROUNDS_TO_2_10) - ROUNDS_TO_2_10
    sums = _along_keys(high.to(tl.float16), triangle, zero, KEYS, "ieee")
    floor = tl.floor(sums)
    rest = (sums - floor) + (carry & (QUANTA - 1)).to(tl.float32) * QUANTUM
    if not APPROXIMATE:
        low = ((gates - high) * 4096.0).to(tl.float16)
        rest += _along_keys(low, triangle, zero, KEYS, "ieee") * (1 / 4096)
    further = tl.floor(rest)
    whole = (carry >> 22).to(tl.int32) + (floor + further).to(tl.int32)
    return whole, rest - further


@triton.jit
def spent_before(breaks, carry, N: tl.constexpr, KEYS: tl.constexpr):
    """The sum of `breaks` over newer keys, on top of the `carry` of newer tiles."""
    triangle = from_newest(N, KEYS, True)
    high = breaks.to(tl.float16)
    low = ((breaks - high.to(tl.float32)) * 2048.0).to(tl.float16)
    sums = tl.zeros_like(breaks) + carry
    sums = _along_keys(high, triangle.to(tl.float16), sums, KEYS, "ieee")
    return _along_keys(low, (triangle * (1 / 2048)).to(tl.float16), sums, KEYS, "ieee")


@triton.jit
def sum_from_oldest(
    x, carry, N: tl.constexpr, KEYS: tl.constexpr, DTYPE: tl.constexpr, PRECISION: tl.constexpr
):
    """For each key the sum of x over it and all older ones, on top of `carry`.

    Halves are summed as they are, fp32 as three bf16 numbers, which lose nothing of it.
    """
    a = tl.arange(0, N)[:, None]
    b = tl.arange(0, N)[None, :]
    triangle = a <= b if KEYS == 1 else a >= b
    sums = tl.zeros_like(x).to(tl.float32) + carry
    if tl.float32 == DTYPE:
        triangle = triangle.to(tl.float32).to(tl.bfloat16)
        first = x.to(tl.bfloat16)
        x -= first.to(tl.float32)
        second = x.to(tl.bfloat16)
        third = (x - second.to(tl.float32)).to(tl.bfloat16)
        sums = _along_keys(third, triangle, sums, KEYS, PRECISION)
        sums = _along_keys(second, triangle, sums, KEYS, PRECISION)
        return _along_keys(first, triangle, sums, KEYS, PRECISION)
    else:
        return _along_keys(x.to(DTYPE), triangle.to(tl.float32).to(DTYPE), sums, KEYS, PRECISION)


# Loads and stores where each number of a tile has an address of its own. In PTX they stay in the
# layout of the tile; those of Triton go through shared memory, with the addresses.


@triton.jit
def number_at(address):
    """The fp32 number at each address."""
    if is_cuda():
        return tl.inline_asm_elementwise(
            "ld.global.nc.f32 $0, [$1];",
            "=f,l",
            [address.to(tl.int64)],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    else:
        return tl.load(address)


@triton.jit
def pair_at(address):
    """The two fp32 numbers at each address."""
    if is_cuda():
        return tl.inline_asm_elementwise(
            "ld.global.nc.v2.f32 {$0, $1}, [$2];",
            "=f,=f,l",
            [address.to(tl.int64)],
            dtype=(tl.float32, tl.float32),
            is_pure=True,
            pack=1,
        )
    else:
        return tl.load(address), tl.load(address + 1)


@triton.jit
def store_number(address, number, mask):
    """Write an fp32 number to each address where `mask` holds."""
    if is_cuda():
        tl.inline_asm_elementwise(
            """{
                .reg .pred there;
                setp.ne.s32 there, $3, 0;
                @there st.global.f32 [$1], $2;
                mov.b32 $0, 0;
            }""",
            "=r,l,f,r",
            [address.to(tl.int64), number, mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    else:
        tl.store(address, number, mask=mask)


@triton.jit
def store_pair(address, first, second, mask):
    """Write two fp32 numbers to each address where `mask` holds."""
    if is_cuda():
        tl.inline_asm_elementwise(
            """{
                .reg .pred there;
                setp.ne.s32 there, $4, 0;
                @there st.global.v2.f32 [$1], {$2, $3};
                mov.b32 $0, 0;
            }""",
            "=r,l,f,f,r",
            [address.to(tl.int64), first, second, mask.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    else:
        tl.store(address, first, mask=mask)
        tl.store(address + 1, second, mask=mask)
