// The one matrix product: C (+)= A · B for blocks that lie in the first or second cache.
//
// A [rows, depth] by any two strides (so that Pᵀ is P read sideways), B [depth, columns] and
// C [rows, columns] with contiguous rows of whole vectors. A block of C stays in registers.
#pragma once

#include "simd.hpp"

namespace milepost {
namespace {

#if defined(MILEPOST_AVX512) || defined(__aarch64__)
constexpr int BLOCK_ROWS = 6, BLOCK_VECTORS = 4; // 24 of 32 registers hold C
#else
constexpr int BLOCK_ROWS = 6, BLOCK_VECTORS = 2; // 12 of 16
#endif

struct Product {
    const float* a;
    long a_row, a_depth;
    const float* b;
    long b_depth;
    float* c;
    long c_row;
    int rows, columns, depth;
};

template <int ROWS, int VECTORS, bool ADD>
APART void block(const float* a, long a_row, long a_depth, const float* b, long b_depth, float* c,
                 long c_row, int depth) {
    F sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) sum[r][v] = ADD ? load(c + r * c_row + v * LANES) : F{};
#pragma GCC unroll 4
    for (int k = 0; k < depth; k++) {
        F right[VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) right[v] = load(b + k * b_depth + v * LANES);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
            const float left = a[r * a_row + k * a_depth];
#pragma GCC unroll 8
            for (int v = 0; v < VECTORS; v++) sum[r][v] += left * right[v];
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
        for (int v = 0; v < VECTORS; v++) store(c + r * c_row + v * LANES, sum[r][v]);
}

template <int VECTORS, bool ADD>
INLINE void column(const Product& p, int n) {
    int r = 0;
    const auto at = [&](auto kernel) {
        kernel(p.a + r * p.a_row, p.a_row, p.a_depth, p.b + n, p.b_depth, p.c + r * p.c_row + n,
               p.c_row, p.depth);
    };
    for (; r + BLOCK_ROWS <= p.rows; r += BLOCK_ROWS) at(block<BLOCK_ROWS, VECTORS, ADD>);
    switch (p.rows - r) {
        case 1:
            at(block<1, VECTORS, ADD>);
            break;
        case 2:
            at(block<2, VECTORS, ADD>);
            break;
        case 3:
            at(block<3, VECTORS, ADD>);
            break;
        case 4:
            at(block<4, VECTORS, ADD>);
            break;
        case 5:
            at(block<5, VECTORS, ADD>);
            break;
    }
}

// `columns` is a whole number of vectors
template <bool ADD>
void multiply(const Product& p) {
    int n = 0;
    for (; n + BLOCK_VECTORS * LANES <= p.columns; n += BLOCK_VECTORS * LANES)
        column<BLOCK_VECTORS, ADD>(p, n);
    if constexpr (BLOCK_VECTORS == 4) {
        if (n + 2 * LANES <= p.columns) column<2, ADD>(p, n), n += 2 * LANES;
    }
    if (n < p.columns) column<1, ADD>(p, n);
}

} // namespace
} // namespace milepost
