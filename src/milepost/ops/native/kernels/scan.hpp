// The scan: each tile of queries meets the tiles of its keys, newest first. Written once for all
// ops; a policy (policies/) adds the op's own carry, logit and derivatives.
#pragma once

#include "policy.hpp"
#include "products.hpp"
#include "scratch.hpp"
#include "threads.hpp"

namespace milepost {
namespace {

constexpr float NOTHING_LOG2 = -24.0f;
constexpr float LOWEST = -3.4028235e38f, INF = __builtin_inff();

// Keys, values and tables as the products want them
struct Packed {
    KeyTiles key, value, gate_keys;
    Shared shared;
    long tiles;

    Packed(const Call& call, bool once, int rows)
        : key(call.key, call.D, call, once, rows),
          value(call.value, call.V, call, once, rows),
          gate_keys(call.gate_keys, call.D, call, once, rows),
          shared{PackedTable(call.table, call.D, call.H),
                 PackedTable(call.relative, call.D, call.H)},
          tiles(key.tiles) {}
    void place_keys(Arena& arena, const Call& call, bool backward) {
        const long heads = call.B * call.G;
        key.place(arena, heads, backward, true);
        value.place(arena, heads, !backward, backward);
        if (call.gate_keys.data) gate_keys.place(arena, heads, backward, true);
    }
    void place_tables(Arena& arena, const Call& call, bool backward) {
        if (call.table.data) shared.table.place(arena, backward);
        if (call.relative.data) shared.relative.place(arena, backward);
        if (call.bias_table) shared.bias_table = arena.floats(call.H * (call.bias_rows + 2 * TILE));
        if (call.op == Op::forgetting) {
            shared.largest_key = arena.floats(call.B * call.G * tiles);
            shared.lowest_decay = arena.take<double>(call.B * call.H * tiles);
        }
    }
    void pack_tables(const Call& call) {
        if (call.table.data) shared.table.pack(call.position_scale * LOG2_E, call.position_scale);
        if (call.relative.data) shared.relative.pack(LOG2_E, 1);
        if (call.bias_table)
            for (long h = 0; h < call.H; h++) {
                const float* from = call.bias_table + h * call.bias_rows;
                float* to = shared.bias_table + h * (call.bias_rows + 2 * TILE);
                fill(to, 0, TILE);
                for (long n = 0; n < call.bias_rows; n++) to[TILE + n] = in_base_2(from[n]);
                fill(to + TILE + call.bias_rows, to[TILE + call.bias_rows - 1], TILE);
            }
    }
    void pack_keys(const Call& call, long b, long g, long tile, float* room) const {
        key.pack(b, g, tile, room);
        value.pack(b, g, tile, room);
        if (call.gate_keys.data) gate_keys.pack(b, g, tile, room);
    }
    // Room for the rows of a tile of which only the sideways form is kept
    long room() const { return TILE * pitch(most(key.width, value.width)); }
};

// What bounds the weights of all older keys of a key head, from each tile on
void measure_keys(const Call& call, const Shared& shared, long bg, float* room) {
    const long b = bg / call.G, g = bg % call.G, tiles = ceil_div(call.T, TILE);
    const long sharing = call.H / call.G;
    bool fades = false;
    for (long h = bg * sharing; h < (bg + 1) * sharing; h++) {
        double lowest = __builtin_inf();
        for (long t = 0; t < call.T; t++) {
            const double decay = call.decay[h * call.T + t];
            lowest = decay < lowest ? decay : lowest;
            shared.lowest_decay[h * tiles + t / TILE] = lowest;
        }
        fades |= (lowest - shared.lowest_decay[h * tiles]) * LOG2_E < NOTHING_LOG2;
    }
    if (!fades) return; // no key is far enough for its length to matter
    float* largest = shared.largest_key;
    float longest = 0;
    for (long t = 0; t < call.T; t++) {
        read_row(call.key, b * call.key.batch + g * call.key.head + t * call.key.time, call.D,
                 room);
        const float square = dot(room, room, call.D);
        longest = square > longest ? square : longest;
        largest[bg * tiles + t / TILE] = __builtin_sqrtf(longest);
    }
}

// The tiles of queries: on the grid of the key tiles, or all at once where there are at most 64
struct QueryTiles {
    long S, offset, first, count;
    int heads = 1; // per tile
    explicit QueryTiles(const Call& call, bool group) : S(call.S), offset(call.T - call.S) {
        first = S <= TILE ? 0 : offset / TILE;
        count = S <= TILE ? 1 : (call.T - 1) / TILE - first + 1;
        if (group && S < TILE) {
            const long sharing = call.H / call.G;
            heads = int(least(sharing, TILE / S));
            while (sharing % heads) heads--;
        }
    }
    long begin(long tile) const { return S <= TILE ? 0 : most(0, (first + tile) * TILE - offset); }
    long end(long tile) const {
        return S <= TILE ? S : least(S, (first + tile + 1) * TILE - offset);
    }
};

// What one thread works in
template <class Policy>
struct Work {
    Policy policy;
    Packed packed; // its own tiles where keys are packed as they are visited
    float *query, *position_query = nullptr, *scores, *gates = nullptr, *out, *top, *sum;
    float* room;
    // backward
    float *grad_out, *d_scores, *weights, *delta, *share, *older, *grad_query, *grad_position_query;
    float *saved_direct = nullptr, *saved_gates = nullptr, *saved_u = nullptr;

    explicit Work(const Packed& packed) : packed(packed) {}
    void place(Arena& arena, const Call& call, bool backward) {
        const long D = pitch(call.D), V = pitch(call.V);
        if (packed.key.once) packed.place_keys(arena, call, backward);
        policy.place(arena, call, packed.shared, backward);
        query = arena.floats(TILE * D);
        position_query = call.position_query.data ? arena.floats(TILE * D) : query;
        scores = arena.floats(TILE * TILE);
        if (Policy::COUNTS && !backward) gates = arena.floats(TILE * TILE);
        out = arena.floats(TILE * V);
        top = arena.floats(TILE), sum = arena.floats(TILE * LANES);
        room = arena.floats(packed.room());
        if (!backward) return;
        grad_out = arena.floats(TILE * V);
        d_scores = arena.floats(TILE * TILE), weights = arena.floats(TILE * TILE);
        delta = arena.floats(TILE), share = arena.floats(TILE), older = arena.floats(TILE);
        grad_query = arena.floats(TILE * D);
        grad_position_query = call.position_query.data ? arena.floats(TILE * D) : grad_query;
        if (Policy::COUNTS) {
            const long kept = packed.tiles * TILE * TILE;
            saved_gates = arena.floats(kept), saved_u = arena.floats(kept);
            if (!call.gate_keys.data) saved_direct = arena.floats(kept);
        }
    }
};

struct Pass {
    const Call& call;
    const QueryTile& q;
    float scale; // of a product, to a logit in base 2
    float gate_scale;
    Pass(const Call& call, const QueryTile& q)
        : call(call), q(q), scale(call.scale * LOG2_E), gate_scale(call.gate_scale * LOG2_E) {}

    // Whether row r is past its oldest key at this tile
    bool done(int r, long newest) const {
        return q.start[r] > newest || q.start[r] > q.position[r];
    }

    template <class Policy>
    bool saturated(const Policy& policy, long newest) const {
        if constexpr (Policy::COUNTS) {
            if (!call.skip) return false;
            for (int r = 0; r < q.rows; r++)
                if (!policy.saturated(r) && !done(r, newest)) return false;
            return true;
        }
        return false;
    }

    // Whether this tile and all older ones add nothing to any row. `top` is some logit of each row.
    template <class Policy>
    bool exhausted(const Work<Policy>& work, const float* top, long tile, long newest) const {
        if (!call.skip) return false;
        if constexpr (!Policy::NORMALISED) {
            for (int r = 0; r < q.rows; r++)
                if (work.policy.left[r] >= NOTHING && !done(r, newest)) return false;
            return true;
        }
        if (call.op == Op::forgetting) return decayed(work, top, tile, newest);
        return false;
    }
    template <class Policy>
    bool decayed(const Work<Policy>& work, const float* top, long tile, long newest) const {
        const Shared& shared = work.packed.shared;
        const long tiles = work.packed.tiles;
        const float longest = shared.largest_key[(q.b * call.G + q.g) * tiles + tile];
        const float keys = __builtin_log2f(float(call.T));
        for (int r = 0; r < q.rows; r++) {
            if (done(r, newest)) continue;
            const long h = q.b * call.H + q.head[r];
            const float since = float(call.decay[h * call.T + q.position[r]] -
                                      shared.lowest_decay[h * tiles + tile]) *
                                LOG2_E;
            if (!(since < NOTHING_LOG2)) return false;
            const float* query = work.query + r * pitch(call.D);
            const float square = dot(query, query, call.D);
            const float most_alike = __builtin_fabsf(scale) * __builtin_sqrtf(square) * longest;
            if (!(most_alike + since + keys < top[r] + NOTHING_LOG2)) return false;
        }
        return true;
    }
};

// gates[r, n] = σ(gate logit), 0 for keys that a row does not see
APART void open_gates(const float* products, float* gates, const QueryTile& q, const Sight& sight,
                      float scale) {
    for (int r = 0; r < q.rows; r++)
        for (int v = 0; v < VECTORS; v++) {
            const long at = r * TILE + v * LANES;
            F gate = sigmoid(scale * load(products + at));
            if (sight.partial) gate = select(sight.seen(r, v), gate, F{});
            store(gates + at, gate);
        }
}

// --- forward -------------------------------------------------------------------------------------

// Weights of one tile in place of its products: 2^(logit − top), and each row's sum of them.
//
// `top` is some logit of the row, not always the greatest: what was summed is scaled to a new one
// only when a logit is so much greater that a weight could overflow.
template <class Row, bool PARTIAL, class Policy>
APART void weights_of_tile(Work<Policy>& work, const Scan& scan, float scale) {
    constexpr float ROOM = 40;
    const long V = pitch(scan.call.V);
    for (int r = 0; r < scan.q->rows; r++) {
        Row row(work.policy, scan, nullptr, r);
        float* scores = work.scores + r * TILE;
        F logits[VECTORS], greatest = splat(-INF);
#pragma GCC unroll 16
        for (int v = 0; v < VECTORS; v++) {
            logits[v] = row.logit(rounded(scale * load(scores + v * LANES)), v);
            if (PARTIAL) logits[v] = select(scan.sight->seen(r, v), logits[v], splat(-INF));
            greatest = max(greatest, logits[v]);
        }
        row.end();
        if (any(greatest > work.top[r] + ROOM)) {
            const float top = largest(greatest), shrink = exp2(splat(work.top[r] - top))[0];
            work.top[r] = top;
            store(work.sum + r * LANES, shrink * load(work.sum + r * LANES));
            float* out = work.out + r * V;
            for (long v = 0; v < V; v += LANES) store(out + v, shrink * load(out + v));
        }
        const F top = splat(work.top[r]);
        F sum = load(work.sum + r * LANES);
#pragma GCC unroll 16
        for (int v = 0; v < VECTORS; v++) {
            const F weight = exp2(logits[v] - top);
            store(scores + v * LANES, weight);
            sum += weight;
        }
        store(work.sum + r * LANES, sum);
    }
}

template <bool PARTIAL, class Policy>
APART void breaks_of_tile(Work<Policy>& work, const Scan& scan, float scale) {
    for (int r = 0; r < scan.q->rows; r++) {
        typename Policy::Row row(work.policy, scan, nullptr, r);
        float* scores = work.scores + r * TILE;
        for (int v = 0; v < VECTORS; v++)
            store(scores + v * LANES, row.weigh(scale * load(scores + v * LANES), v, PARTIAL,
                                                PARTIAL ? scan.sight->seen(r, v) : I{}));
        row.end();
    }
}

template <class Policy>
APART void forward_tile(const Call& call, const QueryTile& q, Work<Policy>& work) {
    const Pass pass(call, q);
    const long D = call.D, V = pitch(call.V);
    const bool own_gate_keys = call.gate_keys.data;
    q.read(call.query, D, work.query);
    if (call.position_query.data) q.read(call.position_query, D, work.position_query);
    Scan scan{call, &q};
    scan.gates = work.gates, scan.query = work.position_query;
    work.policy.begin(scan);
    clear(work.out, TILE * V), clear(work.sum, TILE * LANES);
    fill(work.top, LOWEST, TILE);

    const Packed& keys = work.packed;
    const long oldest_tile = q.oldest / TILE;
    for (long tile = q.newest / TILE; tile >= oldest_tile && q.oldest <= q.newest; tile--) {
        const long newest = keys.key.newest(tile);
        const int count = int(newest - tile * TILE + 1);
        if (pass.exhausted(work, work.top, tile, newest)) break;
        const Sight sight(q, newest, count, call.op == Op::stick_breaking && !call.attend_current);
        scan.sight = &sight, scan.tile = tile;
        if (keys.key.once) keys.pack_keys(call, q.b, q.g, tile, work.room);
        work.policy.tile(scan);

        multiply_by_tile(work.scores, work.query, keys.key, tile, q, sight);
        if constexpr (Policy::NORMALISED) {
            if constexpr (Policy::COUNTS) {
                if (pass.saturated(work.policy, newest)) {
                    using Saturated = typename Policy::Saturated;
                    sight.partial ? weights_of_tile<Saturated, true>(work, scan, pass.scale)
                                  : weights_of_tile<Saturated, false>(work, scan, pass.scale);
                } else {
                    if (own_gate_keys)
                        multiply_by_tile(work.gates, work.position_query, keys.gate_keys, tile, q,
                                         sight);
                    open_gates(own_gate_keys ? work.gates : work.scores, work.gates, q, sight,
                               pass.gate_scale);
                    using Row = typename Policy::Row;
                    sight.partial ? weights_of_tile<Row, true>(work, scan, pass.scale)
                                  : weights_of_tile<Row, false>(work, scan, pass.scale);
                }
            } else {
                using Row = typename Policy::Row;
                sight.partial ? weights_of_tile<Row, true>(work, scan, pass.scale)
                              : weights_of_tile<Row, false>(work, scan, pass.scale);
            }
        } else {
            sight.partial ? breaks_of_tile<true>(work, scan, pass.scale)
                          : breaks_of_tile<false>(work, scan, pass.scale);
        }
        add_of_keys(work.out, work.scores, keys.value.rows_of(q.b, q.g, tile), keys.value.along,
                    call.V, q.rows, sight);
    }

    for (int r = 0; r < q.rows; r++) {
        const long row = q.row(call, r);
        float factor = 1;
        if constexpr (Policy::NORMALISED) {
            const float sum = total(load(work.sum + r * LANES));
            factor = sum == 0 ? 0 : 1 / sum;
            call.residual[row] = work.top[r];
            call.residual[call.B * call.H * call.S + row] = factor;
        } else {
            call.residual[row] = work.policy.left[r];
        }
        const float* out = work.out + r * V;
        for (long v = 0; v < call.V; v++) call.out[row * call.V + v] = out[v] * factor;
    }
}

// --- threads -------------------------------------------------------------------------------------

// Scratch for every thread, and for what they share
struct Memory {
    char* all;
    Memory(long bytes, bool poison) : all(borrow_scratch(bytes)) {
        if (poison) __builtin_memset(all, 0xff, bytes);
    }
    ~Memory() { give_back_scratch(all); }
};

template <class Work>
INLINE void run(int threads, long items, const Work& work) {
    parallel(
        threads, items,
        [](void* context, long item, int thread) {
            FlushDenormals flush;
            (*static_cast<const Work*>(context))(item, thread);
        },
        const_cast<Work*>(&work));
}

// What is done once for all queries. `scratch` is a thread's memory.
template <class Scratch>
void prepare_keys(const Call& call, const Packed& packed, int threads, const Scratch& scratch) {
    const auto room = [&](int thread) { return reinterpret_cast<float*>(scratch(thread)); };
    if (call.op == Op::forgetting && call.skip) {
        const auto measure = [&](long item, int thread) {
            measure_keys(call, packed.shared, item, room(thread));
        };
        run(threads, call.B * call.G, measure);
    }
    if (packed.key.once) return;
    const auto pack = [&](long item, int thread) {
        const long tile = item % packed.tiles, bg = item / packed.tiles;
        packed.pack_keys(call, bg / call.G, bg % call.G, tile, room(thread));
    };
    run(threads, call.B * call.G * packed.tiles, pack);
}

template <class Policy>
void forward(const Call& call) {
    const QueryTiles tiles(call, true);
    const long groups = call.H / tiles.heads;
    Packed packed(call, tiles.count == 1 && tiles.heads == call.H / call.G,
                  int(call.S * tiles.heads));
    Arena arena;
    const auto place_shared = [&] {
        packed.place_tables(arena, call, false);
        if (!packed.key.once) packed.place_keys(arena, call, false);
    };
    place_shared();
    const long shared_bytes = arena.used;
    arena = {};
    Work<Policy>(packed).place(arena, call, false);
    const long bytes = arena.used;
    const long items = call.B * groups * tiles.count;
    const int threads = int(least(call.threads, most(items, call.B * call.G * packed.tiles)));
    const Memory memory(shared_bytes + threads * bytes, call.poison);
    arena = {memory.all};
    place_shared();
    packed.pack_tables(call);
    const auto scratch = [&](int thread) { return memory.all + shared_bytes + thread * bytes; };

    prepare_keys(call, packed, threads, scratch);
    const auto attend = [&](long item, int thread) {
        Work<Policy> work(packed);
        Arena own{scratch(thread)};
        work.place(own, call, false);
        // Head by head, whose keys then stay in the cache; the last tiles, with the most keys,
        // first
        const long tile = tiles.count - 1 - item % tiles.count, bh = item / tiles.count;
        forward_tile(call,
                     QueryTile(call, bh / groups, bh % groups * tiles.heads, tiles.heads,
                               tiles.begin(tile), int(tiles.end(tile) - tiles.begin(tile))),
                     work);
    };
    run(threads, items, attend);
}

} // namespace
} // namespace milepost
