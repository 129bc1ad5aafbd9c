// Operands as the scan wants them: tiles of 64 keys, newest first, and tiles of up to 64 queries.
//
// Lane n of a key tile is key newest − n. A query meets its keys from the newest on, so that what
// it carries along is a running sum over lanes.
#pragma once

#include "interface.hpp"
#include "simd.hpp"

namespace milepost {
namespace {

constexpr int TILE = 64;
constexpr int VECTORS = TILE / LANES;

INLINE long least(long a, long b) { return a < b ? a : b; }
INLINE long most(long a, long b) { return a > b ? a : b; }
INLINE long ceil_div(long a, long b) { return (a + b - 1) / b; }
INLINE long whole_vectors(long width) { return ceil_div(width, LANES) * LANES; }

// The row length of a tile: a multiple of 512 bytes would put its rows into the same few cache sets
INLINE long pitch(long width) {
    const long padded = whole_vectors(width);
    return padded % 128 ? padded : padded + LANES;
}

INLINE void clear(float* to, long count) { __builtin_memset(to, 0, sizeof(float) * count); }
INLINE void copy(float* to, const float* from, long count) {
    __builtin_memcpy(to, from, sizeof(float) * count);
}
INLINE void fill(float* to, float x, long count) {
    for (long i = 0; i < count; i++) to[i] = x;
}

// Scratch memory, handed out front to back; with no base it only counts
struct Arena {
    char* base = nullptr;
    long used = 0;
    template <class X>
    X* take(long count) {
        X* here = base ? reinterpret_cast<X*>(base + used) : nullptr;
        used += ceil_div(sizeof(X) * count, 64) * 64;
        return here;
    }
    float* floats(long count) { return take<float>(count); }
};

// One row as floats, zeros up to whole vectors
INLINE void read_row(const Operand& from, long offset, long width, float* to) {
    const long padded = whole_vectors(width);
    if (from.bfloat16) {
        const auto* row = static_cast<const uint16_t*>(from.data) + offset;
        for (long i = 0; i < width; i++) {
            const uint32_t bits = uint32_t(row[i]) << 16;
            __builtin_memcpy(to + i, &bits, 4);
        }
    } else {
        copy(to, static_cast<const float*>(from.data) + offset, width);
    }
    for (long i = width; i < padded; i++) to[i] = 0;
}

INLINE float sum(const float* a, long count) {
    F sums{};
    long i = 0;
    for (; i + LANES <= count; i += LANES) sums += load(a + i);
    float sum = total(sums);
    for (; i < count; i++) sum += a[i];
    return sum;
}

// Σ a_i b_i
INLINE float dot(const float* a, const float* b, long count) {
    F sums{};
    long i = 0;
    for (; i + LANES <= count; i += LANES) sums += load(a + i) * load(b + i);
    float sum = total(sums);
    for (; i < count; i++) sum += a[i] * b[i];
    return sum;
}

// Keys newest, newest − 1, … as rows of whole vectors; rows past `count` are zeros
void read_keys(const Operand& from, long b, long g, long newest, int count, long width,
               float* rows) {
    const long along = pitch(width);
    for (int n = 0; n < count; n++)
        read_row(from, b * from.batch + g * from.head + (newest - n) * from.time, width,
                 rows + n * along);
    clear(rows + count * along, (TILE - count) * along);
}

// 64 rows, `along` apart, to [width, 64]. Reads whole vectors.
void transpose_tile(const float* rows, long along, long width, float* to) {
    for (long d = 0; d < width; d += LANES)
        for (int n = 0; n < TILE; n += LANES) {
            F square[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) square[i] = load(rows + (n + i) * along + d);
            transpose(square);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                if (d + i < width) store(to + (d + i) * TILE + n, square[i]);
        }
}

// One of key, value or gate_keys: its tiles as rows [64, width], newest first, or sideways
// [width, 64], or both. Packed once for all query tiles, or, where there is but one, as each tile
// is visited. Rows that are floats already, and not far apart, are read where they are.
struct KeyTiles {
    const Operand* from = nullptr;
    long width = 0, G = 0, T = 0, tiles = 0;
    float *rows = nullptr, *sideways = nullptr;
    bool once = false, direct = false;
    bool as_rows = false; // too few queries to turn a tile sideways for
    long along = 0;       // from one row to the next older one

    KeyTiles() = default;
    // `rows` of queries meet each tile, if once
    KeyTiles(const Operand& from, long width, const Call& call, bool once, int rows)
        : from(&from),
          width(width),
          G(call.G),
          T(call.T),
          tiles(ceil_div(call.T, TILE)),
          once(once),
          direct(!from.bfloat16 && width % LANES == 0 && from.time <= 2 * width) {
        along = direct ? -from.time : pitch(width);
        as_rows = once && direct && rows <= 2;
    }
    long row_size() const { return TILE * pitch(width); }
    long sideways_size() const { return TILE * width; }

    void place(Arena& arena, long heads, bool need_rows, bool need_sideways) {
        const long count = once ? 1 : heads * tiles;
        if (need_rows && !direct) rows = arena.floats(count * row_size());
        if (need_sideways && !as_rows) sideways = arena.floats(count * sideways_size());
    }
    long newest(long tile) const { return least((tile + 1) * TILE, T) - 1; }
    long slot(long b, long g, long tile) const { return once ? 0 : (b * G + g) * tiles + tile; }
    // The newest of the tile
    const float* rows_of(long b, long g, long tile) const {
        if (!direct) return rows + slot(b, g, tile) * row_size();
        return static_cast<const float*>(from->data) + b * from->batch + g * from->head +
               newest(tile) * from->time;
    }
    const float* sideways_of(long b, long g, long tile) const {
        return sideways + slot(b, g, tile) * sideways_size();
    }
    // `room` holds the rows on their way where only the sideways tile is kept
    void pack(long b, long g, long tile, float* room) const {
        const long top = newest(tile);
        const int count = int(top - tile * TILE + 1);
        float* across = sideways ? sideways + slot(b, g, tile) * sideways_size() : nullptr;
        if (direct) {
            if (sideways && count == TILE)
                return transpose_tile(rows_of(b, g, tile), along, width, across);
            if (!sideways) return;
        }
        float* to = rows ? rows + slot(b, g, tile) * row_size() : room;
        read_keys(*from, b, g, top, count, width, to);
        if (sideways) transpose_tile(to, pitch(width), width, across);
    }
};

// The queries of one tile: up to 64 of one head, or all the queries of several heads that share
// their keys. Row r is query `query(r)` of head `head(r)`.
struct QueryTile {
    long b = 0, g = 0;
    int queries = 0, rows = 0; // queries of each head, rows in all
    long head[TILE], query[TILE], position[TILE], start[TILE];
    long newest = 0, oldest = 0; // of all keys that a row sees

    QueryTile(const Call& call, long b, long first_head, int heads, long first, int queries)
        : b(b), g(first_head / (call.H / call.G)), queries(queries), rows(heads * queries) {
        newest = first + queries - 1 + call.T - call.S;
        oldest = newest + 1;
        int r = 0;
        for (int h = 0; h < heads; h++)
            for (int i = 0; i < queries; i++, r++) {
                head[r] = first_head + h, query[r] = first + i;
                position[r] = query[r] + call.T - call.S;
                start[r] = call.start ? most(0, call.start[b * call.S + query[r]]) : 0;
                if (start[r] <= position[r]) oldest = least(oldest, start[r]);
            }
    }
    // Of a (B, H, S) array
    long row(const Call& call, int r) const { return (b * call.H + head[r]) * call.S + query[r]; }
    void read(const Operand& from, long width, float* to) const {
        for (int r = 0; r < rows; r++)
            read_row(from, b * from.batch + head[r] * from.head + query[r] * from.time, width,
                     to + r * pitch(width));
    }
};

struct Range {
    int from, to;
};

// Which lanes of a key tile each row of a query tile sees
struct Sight {
    long newest;
    int count;
    bool partial = false; // some row does not see all 64
    int from[TILE], to[TILE];

    // `current` 1 hides a query's own key
    Sight(const QueryTile& q, long newest, int count, int current) : newest(newest), count(count) {
        for (int r = 0; r < q.rows; r++) {
            from[r] = int(most(0, newest - q.position[r] + current));
            to[r] = int(most(0, least(count, newest - q.start[r] + 1)));
            partial |= from[r] > 0 || to[r] < TILE;
        }
    }
    I seen(int r, int v) const {
        const I lane = iota() + v * LANES;
        return (lane >= from[r]) & (lane < to[r]);
    }
    // From the first to the last lane that any of the rows [r, end) sees
    Range lanes(int r, int end) const {
        Range all{TILE, 0};
        for (; r < end; r++)
            if (from[r] < to[r]) all = {int(least(all.from, from[r])), int(most(all.to, to[r]))};
        return all;
    }
    // From the first to the last of `queries` rows that see any of the lanes [n, end)
    Range rows(int n, int end, int queries) const {
        Range all{queries, 0};
        for (int r = 0; r < queries; r++)
            if (from[r] < to[r] && from[r] < end && to[r] > n)
                all = {int(least(all.from, r)), r + 1};
        return all;
    }
};

} // namespace
} // namespace milepost
