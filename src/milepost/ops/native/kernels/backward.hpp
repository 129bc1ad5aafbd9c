// The scan's backward. A work item is a stretch of one head's query tiles, with gradients of its
// own for all that it shares with other items; these are added up in a fixed order at the end, so
// that the result does not depend on the number of threads.
//
// Pass 1 meets the keys newest first, as the forward did, and finishes all but what flows through
// the counts: ∂loss/∂gate_k = Σ_{j ≤ k} ∂loss/∂count_j sums from the oldest key on. Pass 2 walks
// back over the tiles whose counts were not saturated.
#pragma once

#include <cstdlib>

#include "scan.hpp"

namespace milepost {
namespace {

struct Item {
    long b, head;
    long first_tile, end_tile; // of queries
    Partial partial;
};

// How the queries of each head are cut into items: by shapes and `start` alone
struct Cut {
    const Call& call;
    const QueryTiles& tiles;
    long stretches;

    Cut(const Call& call, const QueryTiles& tiles) : call(call), tiles(tiles) {
        // A few items for each of many cores, none so short that its sums cost more than its
        // products
        const long wanted = ceil_div(16, call.B * call.H), worth = most(1, tiles.count / 16);
        stretches = least(wanted, worth);
    }
    QueryTile queries(long b, long head, long tile) const {
        return QueryTile(call, b, head, 1, tiles.begin(tile),
                         int(tiles.end(tile) - tiles.begin(tile)));
    }
    long key_tiles(const QueryTile& q) const {
        return q.oldest > q.newest ? 0 : q.newest / TILE - q.oldest / TILE + 1;
    }
    // Stretches of about as many pairs of tiles each
    void items(long b, Item* to) const {
        long pairs = 0;
        for (long tile = 0; tile < tiles.count; tile++) pairs += key_tiles(queries(b, 0, tile));
        long tile = 0, done = 0;
        for (long s = 0; s < stretches; s++) {
            Item item{b, 0, tile, tile, {}};
            long oldest = call.T, end = 0;
            while (tile < tiles.count &&
                   (s == stretches - 1 || done * stretches < pairs * (s + 1))) {
                const QueryTile q = queries(b, 0, tile);
                done += key_tiles(q);
                if (q.oldest <= q.newest) oldest = least(oldest, q.oldest), end = q.newest + 1;
                tile++;
            }
            item.end_tile = tile;
            item.partial.first = oldest / TILE * TILE;
            item.partial.keys =
                most(0, least(ceil_div(end, TILE) * TILE, call.T) - item.partial.first);
            for (long head = 0; head < call.H; head++) {
                item.head = head;
                to[head * stretches + s] = item;
            }
        }
    }
};

// Gradients of a pair of tiles
// ------------------------------------------------------------------------------------------------

template <class Row, bool PARTIAL, class Policy>
APART void derivatives_of_tile(Work<Policy>& work, const Scan& scan, Partial& partial,
                               float* direct, float* through_counts) {
    const float scale = scan.call.scale, in_base_2 = scale * LOG2_E;
    for (int r = 0; r < scan.q->rows; r++) {
        Row row(work.policy, scan, &partial, r);
        const F top = splat(work.top[r]), share = splat(work.share[r]),
                delta = splat(work.delta[r]);
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) {
            const long at = r * TILE + v * LANES;
            F logit = row.logit(rounded(in_base_2 * load(work.scores + at)), v);
            if (PARTIAL) logit = select(scan.sight->seen(r, v), logit, splat(-INF));
            const F weight = share * exp2(logit - top);
            store(work.weights + at, weight);
            const F dl = weight * (load(work.d_scores + at) - delta);
            store(direct + at, scale * dl);
            const F u = row.derive(dl, v);
            if (through_counts) store(through_counts + at, u);
        }
        row.end();
    }
}

template <bool PARTIAL, class Policy>
APART void break_derivatives_of_tile(Work<Policy>& work, const Scan& scan, float* direct) {
    const float scale = scan.call.scale, in_base_2 = scale * LOG2_E;
    for (int r = 0; r < scan.q->rows; r++) {
        typename Policy::Row row(work.policy, scan, nullptr, r);
        for (int v = 0; v < VECTORS; v++) {
            const long at = r * TILE + v * LANES;
            store(work.weights + at, row.weigh(in_base_2 * load(work.scores + at), v, PARTIAL,
                                               PARTIAL ? scan.sight->seen(r, v) : I{}));
            row.take(load(work.d_scores + at), v);
        }
        row.settle();
        for (int v = VECTORS - 1; v >= 0; v--)
            store(direct + r * TILE + v * LANES, scale * row.derive(v));
        row.end();
        row.end_backward();
    }
}

// grad_rows += d · keys, grad_keys += dᵀ · rows
INLINE void both(const float* d, const float* rows, const float* key_rows, long key_along,
                 float* grad_rows, float* grad_newest, long width, int queries,
                 const Sight& sight) {
    add_of_keys(grad_rows, d, key_rows, key_along, width, queries, sight);
    add_of_rows(grad_newest, d, rows, width, queries, sight);
}

template <class Policy>
APART void backward_tile(const Call& call, const QueryTile& q, Work<Policy>& work,
                         Partial& partial) {
    const Pass pass(call, q);
    const long D = whole_vectors(call.D), V = whole_vectors(call.V);
    const long D_along = pitch(call.D), V_along = pitch(call.V);
    const bool own_gate_keys = call.gate_keys.data, own_query = call.position_query.data;
    q.read(call.query, call.D, work.query);
    if (own_query) q.read(call.position_query, call.D, work.position_query);
    q.read(call.grad_out, call.V, work.grad_out);
    Scan scan{call, &q};
    scan.query = work.position_query;
    work.policy.begin(scan);
    clear(work.grad_query, TILE * D_along);
    if (own_query) clear(work.grad_position_query, TILE * D_along);
    for (int r = 0; r < q.rows; r++) {
        const long row = q.row(call, r);
        if constexpr (Policy::NORMALISED) {
            work.top[r] = call.residual[row];
            work.share[r] = call.residual[call.B * call.H * call.S + row];
        }
        const float delta = dot(work.grad_out + r * V_along, call.out + row * call.V, call.V);
        work.delta[r] = delta;
        if constexpr (!Policy::NORMALISED)
            work.policy.to_come[r] = delta + call.grad_residual[row] * call.residual[row];
    }

    const Packed& keys = work.packed;
    const long newest_tile = q.newest / TILE, oldest_tile = q.oldest / TILE;
    long kept = 0;
    for (long tile = newest_tile; tile >= oldest_tile && q.oldest <= q.newest; tile--) {
        const long newest = keys.key.newest(tile), last = newest - partial.first;
        const int count = int(newest - tile * TILE + 1);
        if (pass.exhausted(work, work.top, tile, newest)) break;
        const Sight sight(q, newest, count, call.op == Op::stick_breaking && !call.attend_current);
        scan.sight = &sight, scan.tile = tile;
        work.policy.tile(scan);

        multiply_by_tile(work.scores, work.query, keys.key, tile, q, sight);
        multiply_by_tile(work.d_scores, work.grad_out, keys.value, tile, q, sight);
        float* d = work.d_scores;
        bool finished = true;
        if constexpr (Policy::COUNTS) {
            if (pass.saturated(work.policy, newest)) {
                using Saturated = typename Policy::Saturated;
                sight.partial
                    ? derivatives_of_tile<Saturated, true>(work, scan, partial, d, nullptr)
                    : derivatives_of_tile<Saturated, false>(work, scan, partial, d, nullptr);
            } else {
                const long slot = kept++ * TILE * TILE;
                scan.gates = work.saved_gates + slot;
                if (own_gate_keys)
                    multiply_by_tile(scan.gates, work.position_query, keys.gate_keys, tile, q,
                                     sight);
                else
                    d = work.saved_direct + slot, finished = false;
                open_gates(own_gate_keys ? scan.gates : work.scores, scan.gates, q, sight,
                           pass.gate_scale);
                using Row = typename Policy::Row;
                float* u = work.saved_u + slot;
                sight.partial ? derivatives_of_tile<Row, true>(work, scan, partial, d, u)
                              : derivatives_of_tile<Row, false>(work, scan, partial, d, u);
            }
        } else if constexpr (Policy::NORMALISED) {
            using Row = typename Policy::Row;
            sight.partial ? derivatives_of_tile<Row, true>(work, scan, partial, d, nullptr)
                          : derivatives_of_tile<Row, false>(work, scan, partial, d, nullptr);
        } else {
            sight.partial ? break_derivatives_of_tile<true>(work, scan, d)
                          : break_derivatives_of_tile<false>(work, scan, d);
        }
        add_of_rows(partial.value + last * V, work.weights, work.grad_out, call.V, q.rows, sight);
        if (finished)
            both(d, work.query, keys.key.rows_of(q.b, q.g, tile), keys.key.along, work.grad_query,
                 partial.key + last * D, call.D, q.rows, sight);
    }

    if constexpr (Policy::COUNTS) {
        float* older = work.older; // Σ ∂loss/∂count over the keys of older tiles
        clear(older, TILE);
        const float factor = call.gate_scale * LN_2;
        for (long slot = kept - 1; slot >= 0; slot--) {
            const long tile = newest_tile - slot, newest = keys.key.newest(tile),
                       last = newest - partial.first;
            const Sight sight(q, newest, int(newest - tile * TILE + 1), 0);
            const long offset = slot * TILE * TILE;
            for (int r = 0; r < q.rows; r++) {
                F sum = splat(older[r]);
#pragma GCC unroll 16
                for (int v = VECTORS - 1; v >= 0; v--) {
                    const long at = r * TILE + v * LANES;
                    const F gate = load(work.saved_gates + offset + at);
                    const F counted =
                        sum + running_sum_from_oldest(load(work.saved_u + offset + at));
                    F d = factor * gate * (1.0f - gate) * counted;
                    if (!own_gate_keys) d += load(work.saved_direct + offset + at);
                    store(work.d_scores + at, d);
                    sum = first_lane(counted);
                }
                older[r] = sum[0];
            }
            if (own_gate_keys)
                both(work.d_scores, work.position_query, keys.gate_keys.rows_of(q.b, q.g, tile),
                     keys.gate_keys.along, work.grad_position_query, partial.gate_keys + last * D,
                     call.D, q.rows, sight);
            else
                both(work.d_scores, work.query, keys.key.rows_of(q.b, q.g, tile), keys.key.along,
                     work.grad_query, partial.key + last * D, call.D, q.rows, sight);
        }
    }

    work.policy.finish(scan, work.grad_position_query, partial);
    for (int r = 0; r < q.rows; r++) {
        const long row = q.row(call, r) * call.D;
        copy(call.grad_query + row, work.grad_query + r * D_along, call.D);
        if (own_query)
            copy(call.grad_position_query + row, work.grad_position_query + r * D_along, call.D);
    }
}

// Sums over the items
// ------------------------------------------------------------------------------------------------

// Where a key-like gradient is gathered: in place where one item owns it, else item by item
struct Gathered {
    float* grad = nullptr; // (B, G, T, width)
    long width = 0;
    bool in_place = false;

    Gathered(const Call& call, float* grad, long width, long stretches)
        : grad(grad),
          width(width),
          in_place(stretches == 1 && call.H == call.G && width % LANES == 0) {}
    long W() const { return whole_vectors(width); }

    float* place(Arena& arena, const Call& call, const Item& item) const {
        if (!grad) return nullptr;
        if (in_place)
            return grad + ((item.b * call.G + item.head) * call.T + item.partial.first) * W();
        return arena.floats(item.partial.keys * W());
    }
    void clear_own(const Call& call, const Item& item, float* own) const {
        if (!grad) return;
        if (in_place)
            clear(grad + (item.b * call.G + item.head) * call.T * W(), call.T * W());
        else
            clear(own, item.partial.keys * W());
    }
    // Key rows of one tile, from all items of the heads that share it
    void add_up(const Call& call, const Item* items, long stretches, long b, long g, long tile,
                float* Partial::* which) const {
        if (!grad || in_place) return;
        const long sharing = call.H / call.G, end = least((tile + 1) * TILE, call.T);
        for (long t = tile * TILE; t < end; t++) {
            float* to = grad + ((b * call.G + g) * call.T + t) * width;
            clear(to, width);
            for (long i = g * sharing * stretches; i < (g + 1) * sharing * stretches; i++) {
                const Partial& partial = items[b * call.H * stretches + i].partial;
                if (t < partial.first || t >= partial.first + partial.keys) continue;
                const float* from = partial.*which + (t - partial.first) * W();
                for (long d = 0; d < width; d++) to[d] += from[d];
            }
        }
    }
};

// The sum over items of the given head (any, if head < 0) of so many floats
void add_up(const Call& call, const Item* items, long stretches, long head, float* Partial::* which,
            long at, float* to, long count, float factor) {
    for (long i = 0; i < count; i++) to[i] = 0;
    for (long n = 0; n < call.B * call.H * stretches; n++) {
        if (head >= 0 && items[n].head != head) continue;
        const float* from = items[n].partial.*which + at;
        for (long i = 0; i < count; i++) to[i] += from[i];
    }
    for (long i = 0; i < count; i++) to[i] *= factor;
}

void add_up_table(const Call& call, const Item* items, long stretches, const Table& table,
                  float* Partial::* which, float factor) {
    if (!table.grad) return;
    const long W = whole_vectors(call.D), heads = table.head ? call.H : 1;
    const auto row = [&](long item, int) {
        add_up(call, items, stretches, table.head ? item / table.rows : -1, which,
               item % table.rows * W, table.grad + item * call.D, call.D, factor);
    };
    run(call.threads, heads * table.rows, row);
}

struct ItemList {
    Item* all;
    explicit ItemList(long count) : all(static_cast<Item*>(std::calloc(count, sizeof(Item)))) {
        if (!all) std::abort();
    }
    ~ItemList() { std::free(all); }
};

template <class Policy>
void backward(const Call& call) {
    const QueryTiles tiles(call, false);
    const Cut cut(call, tiles);
    const long count = call.B * call.H * cut.stretches;
    Packed packed(call, false, TILE);
    const Gathered keys(call, call.grad_key, call.D, cut.stretches);
    const Gathered values(call, call.grad_value, call.V, cut.stretches);
    const Gathered gate_keys(call, call.grad_gate_keys, call.D, cut.stretches);
    const long D = whole_vectors(call.D);

    const ItemList list(count);
    Item* const items = list.all;
    for (long b = 0; b < call.B; b++) cut.items(b, items + b * call.H * cut.stretches);

    Arena arena;
    const auto place_shared = [&] {
        packed.place_tables(arena, call, true);
        packed.place_keys(arena, call, true);
        for (long i = 0; i < count; i++) {
            Partial& own = items[i].partial;
            own.key = keys.place(arena, call, items[i]);
            own.value = values.place(arena, call, items[i]);
            own.gate_keys = gate_keys.place(arena, call, items[i]);
            if (call.table.data) own.table = arena.floats(call.table.rows * D);
            if (call.relative.data) own.relative = arena.floats(call.relative.rows * D);
            if (call.bias_table) own.bias_table = arena.floats(call.bias_rows + 2 * TILE);
            if (call.decay) own.decay = arena.floats(ceil_div(own.keys, TILE) * TILE);
            if (call.slopes) own.slope = arena.floats(1);
        }
    };
    place_shared();
    const long shared_bytes = arena.used;
    arena = {};
    Work<Policy>(packed).place(arena, call, true);
    const long bytes = arena.used;
    const int threads = int(least(call.threads, most(count, call.B * call.G * packed.tiles)));
    const Memory memory(shared_bytes + threads * bytes, call.poison);
    arena = {memory.all};
    place_shared();
    packed.pack_tables(call);
    const auto scratch = [&](int thread) { return memory.all + shared_bytes + thread * bytes; };

    prepare_keys(call, packed, threads, scratch);

    const auto derive = [&](long i, int thread) {
        Work<Policy> work(packed);
        Arena own{scratch(thread)};
        work.place(own, call, true);
        Item& item = items[i];
        Partial& partial = item.partial;
        keys.clear_own(call, item, partial.key);
        values.clear_own(call, item, partial.value);
        gate_keys.clear_own(call, item, partial.gate_keys);
        if (partial.table) clear(partial.table, call.table.rows * D);
        if (partial.relative) clear(partial.relative, call.relative.rows * D);
        if (partial.bias_table) clear(partial.bias_table, call.bias_rows + 2 * TILE);
        if (partial.decay) clear(partial.decay, ceil_div(partial.keys, TILE) * TILE);
        if (partial.slope) clear(partial.slope, 1);
        for (long tile = item.first_tile; tile < item.end_tile; tile++)
            backward_tile(call, cut.queries(item.b, item.head, tile), work, partial);
    };
    run(threads, count, derive);

    const auto sum_keys = [&](long item, int) {
        const long tile = item % packed.tiles, b = item / packed.tiles / call.G,
                   g = item / packed.tiles % call.G;
        keys.add_up(call, items, cut.stretches, b, g, tile, &Partial::key);
        values.add_up(call, items, cut.stretches, b, g, tile, &Partial::value);
        gate_keys.add_up(call, items, cut.stretches, b, g, tile, &Partial::gate_keys);
    };
    run(threads, call.B * call.G * packed.tiles, sum_keys);
    add_up_table(call, items, cut.stretches, call.table, &Partial::table, call.position_scale);
    add_up_table(call, items, cut.stretches, call.relative, &Partial::relative, 1);
    for (long h = 0; h < call.H; h++) {
        if (call.grad_slopes)
            add_up(call, items, cut.stretches, h, &Partial::slope, 0, call.grad_slopes + h, 1, 1);
        if (call.grad_bias_table) {
            const long rows = call.bias_rows;
            for (long i = 0; i < count; i++) {
                float* own = items[i].partial.bias_table + TILE;
                if (items[i].head != h) continue;
                for (long n = rows; n < rows + TILE; n++) own[rows - 1] += own[n];
            }
            add_up(call, items, cut.stretches, h, &Partial::bias_table, TILE,
                   call.grad_bias_table + h * rows, rows, 1);
        }
    }
    if (call.grad_decay) {
        clear(call.grad_decay, call.B * call.H * call.T);
        for (long i = 0; i < count; i++) {
            const Partial& own = items[i].partial;
            float* to = call.grad_decay + (items[i].b * call.H + items[i].head) * call.T;
            for (long t = own.first; t < own.first + own.keys; t++) {
                const long tile = t / TILE, newest = packed.key.newest(tile);
                to[t] += own.decay[tile * TILE - own.first + newest - t];
            }
        }
    }
}

} // namespace
} // namespace milepost
