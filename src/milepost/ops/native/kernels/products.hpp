// The products of a tile of queries with a tile of keys.
//
// Where rows do not see all lanes (the diagonal, a `start`), the tile is cut into bands of rows,
// and a band is multiplied by the lanes that one of its rows sees: on the diagonal that is 5/8 of
// it.
#pragma once

#include "gemm.hpp"
#include "tiles.hpp"

namespace milepost {
namespace {

constexpr int BAND = 16;

// scores[r, n] = rows_r · keys_n, and 0 between a band and the lanes that it does not see.
// `sideways` is the keys, [width, 64].
INLINE void multiply_by_keys(float* scores, const float* rows, long width, const float* sideways,
                             int count, const Sight& sight) {
    const long along = pitch(width);
    if (!sight.partial) {
        multiply<false>({rows, along, 1, sideways, TILE, scores, TILE, count, TILE, int(width)});
        return;
    }
    clear(scores, count * TILE);
    for (int r = 0; r < count; r += BAND) {
        const int end = int(least(r + BAND, count));
        const Range lanes = sight.lanes(r, end);
        const int from = lanes.from / LANES * LANES, to = int(whole_vectors(lanes.to));
        if (from < to)
            multiply<false>({rows + r * along, along, 1, sideways + from, TILE,
                             scores + r * TILE + from, TILE, end - r, to - from, int(width)});
    }
}

// The same from the keys as they lie, newest first, for queries that are too few to turn them for
INLINE void multiply_by_rows(float* scores, const float* rows, long width, const float* newest,
                             long keys_along, int count, int keys) {
    for (int r = 0; r < count; r++)
        for (int n = 0; n < TILE; n += LANES) {
            F sums[LANES]{};
            for (int i = 0; i < LANES && n + i < keys; i++)
                for (long d = 0; d < width; d += LANES)
                    sums[i] +=
                        load(rows + r * pitch(width) + d) * load(newest + (n + i) * keys_along + d);
            transpose(sums);
            F score{};
            for (int i = 0; i < LANES; i++) score += sums[i];
            store(scores + r * TILE + n, score);
        }
}

INLINE void multiply_by_tile(float* scores, const float* rows, const KeyTiles& keys, long tile,
                             const QueryTile& q, const Sight& sight) {
    if (keys.as_rows)
        multiply_by_rows(scores, rows, keys.width, keys.rows_of(q.b, q.g, tile), keys.along, q.rows,
                         sight.count);
    else
        multiply_by_keys(scores, rows, keys.width, keys.sideways_of(q.b, q.g, tile), q.rows, sight);
}

// sums_r += Σ_n weights[r, n] · keys_n; `keys_along` from one key to the next
INLINE void add_of_keys(float* sums, const float* weights, const float* keys, long keys_along,
                        long width, int count, const Sight& sight) {
    const long along = pitch(width);
    const int columns = int(whole_vectors(width));
    if (!sight.partial) {
        multiply<true>(
            {weights, TILE, 1, keys, keys_along, sums, along, count, columns, sight.count});
        return;
    }
    for (int r = 0; r < count; r += BAND) {
        const int end = int(least(r + BAND, count));
        const Range lanes = sight.lanes(r, end);
        if (lanes.from < lanes.to)
            multiply<true>({weights + r * TILE + lanes.from, TILE, 1,
                            keys + lanes.from * keys_along, keys_along, sums + r * along, along,
                            end - r, columns, lanes.to - lanes.from});
    }
}

// sums_n += Σ_r weights[r, n] · rows_r; the sums of one key stand before those of the next newer
INLINE void add_of_rows(float* newest_sums, const float* weights, const float* rows, long width,
                        int count, const Sight& sight) {
    const long along = pitch(width), W = whole_vectors(width);
    if (!sight.partial) {
        multiply<true>(
            {weights, 1, TILE, rows, along, newest_sums, -W, sight.count, int(W), count});
        return;
    }
    for (int n = 0; n < sight.count; n += BAND) {
        const int end = int(least(n + BAND, sight.count));
        const Range seeing = sight.rows(n, end, count);
        if (seeing.from < seeing.to)
            multiply<true>({weights + seeing.from * TILE + n, 1, TILE, rows + seeing.from * along,
                            along, newest_sums - n * W, -W, end - n, int(W),
                            seeing.to - seeing.from});
    }
}

} // namespace
} // namespace milepost
