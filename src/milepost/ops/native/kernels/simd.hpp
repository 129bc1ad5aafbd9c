// One vector of floats, and what the scan does to it. The only file that names an instruction.
//
// Vectors are the compiler's own (GCC and clang), so that arithmetic is written as arithmetic;
// intrinsics stand only where the compilers have no word for what the machine can do.
#pragma once

#include <cstdint>

#if defined(__AVX512F__) && !defined(MILEPOST_GENERIC)
#define MILEPOST_AVX512 1
#elif defined(__AVX2__) && !defined(MILEPOST_GENERIC)
#define MILEPOST_AVX2 1
#endif

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
#define APART __attribute__((noinline))

namespace milepost {
namespace {

#if defined(MILEPOST_AVX512)
constexpr int LANES = 16;
#elif defined(MILEPOST_AVX2)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float F __attribute__((vector_size(4 * LANES)));
typedef int32_t I __attribute__((vector_size(4 * LANES)));
typedef float UnalignedF __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE F load(const float* from) { return *reinterpret_cast<const UnalignedF*>(from); }
INLINE void store(float* to, F x) { *reinterpret_cast<UnalignedF*>(to) = x; }
INLINE F splat(float x) { return F{} + x; }
INLINE I splat(int32_t x) { return I{} + x; }
INLINE F select(I mask, F yes, F no) { return mask ? yes : no; }

INLINE bool any(I mask) {
#if defined(MILEPOST_AVX512)
    return _mm512_movepi32_mask((__m512i)mask);
#elif defined(MILEPOST_AVX2)
    return _mm256_movemask_ps((__m256)mask);
#else
    return mask[0] | mask[1] | mask[2] | mask[3];
#endif
}

// x as it is rounded: what is subtracted from it must not be fused with the product that made it
INLINE F rounded(F x) {
#if defined(__x86_64__)
    asm("" : "+v"(x));
#elif defined(__aarch64__)
    asm("" : "+w"(x));
#endif
    return x;
}

// Lane numbers, 0 first
INLINE I iota() {
    I lanes{};
    for (int i = 0; i < LANES; i++) lanes[i] = i;
    return lanes;
}

// The larger of two; the second where either is NaN
INLINE F max(F a, F b) {
#if defined(MILEPOST_AVX512)
    return (F)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(MILEPOST_AVX2)
    return (F)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return a > b ? a : b;
#endif
}

// Lanes moved by N, zeros (or `fill`) coming in: `up` towards older keys, `down` towards newer
#if defined(MILEPOST_AVX512)
template <int N>
INLINE F up(F x, F fill = F{}) {
    return (F)_mm512_alignr_epi32((__m512i)x, (__m512i)fill, 16 - N);
}
template <int N>
INLINE F down(F x, F fill = F{}) {
    return (F)_mm512_alignr_epi32((__m512i)fill, (__m512i)x, N);
}
INLINE F last_lane(F x) { return (F)_mm512_permutexvar_ps(_mm512_set1_epi32(15), (__m512)x); }
INLINE F first_lane(F x) { return (F)_mm512_broadcastss_ps(_mm512_castps512_ps128((__m512)x)); }
INLINE F reverse(F x) {
    return __builtin_shufflevector(x, x, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
}
#elif defined(MILEPOST_AVX2)
template <int N>
INLINE F up(F x, F fill = F{}) {
    return __builtin_shufflevector(fill, x, 8 - N, 9 - N, 10 - N, 11 - N, 12 - N, 13 - N, 14 - N,
                                   15 - N);
}
template <int N>
INLINE F down(F x, F fill = F{}) {
    return __builtin_shufflevector(x, fill, N, N + 1, N + 2, N + 3, N + 4, N + 5, N + 6, N + 7);
}
INLINE F last_lane(F x) { return __builtin_shufflevector(x, x, 7, 7, 7, 7, 7, 7, 7, 7); }
INLINE F first_lane(F x) { return __builtin_shufflevector(x, x, 0, 0, 0, 0, 0, 0, 0, 0); }
INLINE F reverse(F x) { return __builtin_shufflevector(x, x, 7, 6, 5, 4, 3, 2, 1, 0); }
#else
template <int N>
INLINE F up(F x, F fill = F{}) {
    return __builtin_shufflevector(fill, x, 4 - N, 5 - N, 6 - N, 7 - N);
}
template <int N>
INLINE F down(F x, F fill = F{}) {
    return __builtin_shufflevector(x, fill, N, N + 1, N + 2, N + 3);
}
INLINE F last_lane(F x) { return __builtin_shufflevector(x, x, 3, 3, 3, 3); }
INLINE F first_lane(F x) { return __builtin_shufflevector(x, x, 0, 0, 0, 0); }
INLINE F reverse(F x) { return __builtin_shufflevector(x, x, 3, 2, 1, 0); }
#endif

// Running sum (product) from lane 0, the newest key, up to and including each lane
INLINE F running_sum(F x) {
    x += up<1>(x);
    x += up<2>(x);
    if constexpr (LANES > 4) x += up<4>(x);
    if constexpr (LANES > 8) x += up<8>(x);
    return x;
}
INLINE F running_product(F x) {
    const F one = splat(1.0f);
    x *= up<1>(x, one);
    x *= up<2>(x, one);
    if constexpr (LANES > 4) x *= up<4>(x, one);
    if constexpr (LANES > 8) x *= up<8>(x, one);
    return x;
}
// The same from the last lane, the oldest key, down
INLINE F running_sum_from_oldest(F x) {
    x += down<1>(x);
    x += down<2>(x);
    if constexpr (LANES > 4) x += down<4>(x);
    if constexpr (LANES > 8) x += down<8>(x);
    return x;
}

INLINE float largest(F x) {
#if defined(MILEPOST_AVX512)
    return _mm512_reduce_max_ps((__m512)x);
#else
    if constexpr (LANES > 4) x = max(x, down<4>(x, x));
    x = max(x, down<2>(x, x));
    x = max(x, down<1>(x, x));
    return x[0];
#endif
}
INLINE float total(F x) {
    if constexpr (LANES > 8) x += down<8>(x);
    if constexpr (LANES > 4) x += down<4>(x);
    x += down<2>(x);
    x += down<1>(x);
    return x[0];
}

// 2^x to 2e-7 relative; 0 below 2^-126; NaN stays NaN. Degree 5, minimax on [-1/2, 1/2].
INLINE F exp2(F x) {
#if defined(MILEPOST_AVX512)
    x = max(splat(-200.0f), x);
    const F whole = (F)_mm512_roundscale_ps((__m512)x, 0);
#else
    const F given = x;
    const F wide = splat(12582912.0f); // 1.5 · 2^23: adding it rounds to whole numbers
    const I none = x < -126.0f;
    x = max(splat(-126.0f), x);
    x = x > 127.0f ? splat(127.0f) : x;
    const F shifted = x + wide;
    const F whole = shifted - wide;
#endif
    const F f = x - whole;
    F p = splat(1.326473244e-3f);
    p = p * f + 9.671513053e-3f;
    p = p * f + 5.550733725e-2f;
    p = p * f + 2.402224208e-1f;
    p = p * f + 6.931469776e-1f;
    p = p * f + 1.0f;
#if defined(MILEPOST_AVX512)
    return (F)_mm512_scalef_ps((__m512)p, (__m512)whole);
#else
    const F scaled = (F)((I)p + ((I)shifted << 23));
    return select(given == given, select(none, F{}, scaled),
                  given); // NaN has no exponent to add to
#endif
}

INLINE F reciprocal(F x) {
#if defined(MILEPOST_AVX512)
    const F y = (F)_mm512_rcp14_ps((__m512)x);
    return y * (2.0f - x * y);
#else
    return 1.0f / x;
#endif
}

// table[index] per lane, for indices 0 … 2·LANES − 1
INLINE F lookup(const float* table, I index) {
#if defined(MILEPOST_AVX512)
    return (F)_mm512_permutex2var_ps((__m512)load(table), (__m512i)index, (__m512)load(table + 16));
#elif defined(MILEPOST_AVX2)
    const F low = (F)_mm256_permutevar8x32_ps((__m256)load(table), (__m256i)index);
    const F high = (F)_mm256_permutevar8x32_ps((__m256)load(table + 8), (__m256i)index);
    return select(index > 7, high, low);
#else
    F found{};
    for (int i = 0; i < LANES; i++) found[i] = table[index[i]];
    return found;
#endif
}

// at[index] += a and at[index + 1] += b per lane; indices do not fall from lane to lane
INLINE void scatter_add(float* at, I index, F a, F b) {
#if defined(MILEPOST_AVX512)
    // Lanes of one index stand together: their sum is a difference of two running sums
    const __m512i indices = (__m512i)index;
    const __m512i next = _mm512_alignr_epi32(_mm512_set1_epi32(-1), indices, 1);
    const __mmask16 ends = _mm512_cmpneq_epi32_mask(indices, next);
    const int sums = __builtin_popcount(ends), from = index[0];
    if (index[LANES - 1] - from + 1 == sums) {
        const __mmask16 real = __mmask16((1u << sums) - 1);
        F one = (F)_mm512_maskz_compress_ps(ends, (__m512)running_sum(a));
        F other = (F)_mm512_maskz_compress_ps(ends, (__m512)running_sum(b));
        one -= up<1>(one);
        other -= up<1>(other);
        at += from;
        store(at, load(at) + (F)_mm512_maskz_mov_ps(real, (__m512)one));
        store(at + 1, load(at + 1) + (F)_mm512_maskz_mov_ps(real, (__m512)other));
        return;
    }
#endif
    for (int i = 0; i < LANES; i++) {
        at[index[i]] += a[i];
        at[index[i] + 1] += b[i];
    }
}

// Lanes of a and b by turns, from their first or second halves
#if defined(MILEPOST_AVX512)
INLINE F interleave_low(F a, F b) {
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
INLINE F interleave_high(F a, F b) {
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                   31);
}
#elif defined(MILEPOST_AVX2)
INLINE F interleave_low(F a, F b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
INLINE F interleave_high(F a, F b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
#else
INLINE F interleave_low(F a, F b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
INLINE F interleave_high(F a, F b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
#endif

// As many rows as lanes, transposed: log2 LANES perfect shuffles
INLINE void shuffle_rows(const F* from, F* to) {
#pragma GCC unroll 8
    for (int i = 0; i < LANES / 2; i++) {
        to[2 * i] = interleave_low(from[i], from[i + LANES / 2]);
        to[2 * i + 1] = interleave_high(from[i], from[i + LANES / 2]);
    }
}
INLINE void transpose(F* rows) {
    F other[LANES];
    shuffle_rows(rows, other);
    shuffle_rows(other, rows);
    if constexpr (LANES > 4) shuffle_rows(rows, other);
    if constexpr (LANES > 8) shuffle_rows(other, rows);
    if constexpr (LANES == 8) {
#pragma GCC unroll 8
        for (int i = 0; i < LANES; i++) rows[i] = other[i];
    }
}

// Numbers too small for the normal range count as 0 while this lives: they add nothing, and an
// x86 core takes a hundred times as long over each.
struct FlushDenormals {
#if defined(__x86_64__)
    unsigned before = _mm_getcsr();
    FlushDenormals() { _mm_setcsr(before | 0x8040); }
    ~FlushDenormals() { _mm_setcsr(before); }
#elif defined(__aarch64__)
    uint64_t before;
    FlushDenormals() {
        asm volatile("mrs %0, fpcr" : "=r"(before));
        asm volatile("msr fpcr, %0" ::"r"(before | (uint64_t(1) << 24)));
    }
    ~FlushDenormals() { asm volatile("msr fpcr, %0" ::"r"(before)); }
#endif
};

} // namespace
} // namespace milepost
