// Numbers by token distance: a bias table, or the products of a query with a table's vectors.
#pragma once

#include "../policy.hpp"

namespace milepost {
namespace {

// t[min(i − j, N − 1)]: a row of numbers by distance, which grows with the lane
struct ByDistance {
    const float* at; // t[distance of lane 0]
    float* grad;
    bool beyond; // all lanes have the last entry
    F sum{};
    float* last;

    ByDistance(const float* row, float* grad_row, long last_entry, long distance)
        : beyond(distance >= last_entry) {
        const long from = beyond ? last_entry : distance;
        at = row ? row + from : nullptr;
        grad = grad_row ? grad_row + from : nullptr;
        last = grad_row ? grad_row + last_entry : nullptr;
    }
    F value(int v) const { return beyond ? splat(*at) : load(at + v * LANES); }
    void derive(F dl, int v) {
        if (beyond)
            sum += dl;
        else
            store(grad + v * LANES, load(grad + v * LANES) + dl);
    }
    void end() {
        if (beyond && last) *last += total(sum);
    }
};

// s + b[h, min(i − j, N − 1)]
struct BiasTable : Policy {
    static constexpr bool NORMALISED = true, COUNTS = false;
    const Shared* shared = nullptr;
    long stride = 0;
    void place(Arena&, const Call& call, const Shared& all, bool) {
        shared = &all, stride = call.bias_rows + 2 * TILE;
    }

    struct Row : ByDistance {
        Row(BiasTable& policy, const Scan& scan, Partial* partial, int r)
            : ByDistance(policy.shared->bias_table + scan.q->head[r] * policy.stride + TILE,
                         partial ? partial->bias_table + TILE : nullptr, scan.call.bias_rows - 1,
                         scan.q->position[r] - scan.sight->newest) {}
        F logit(F content, int v) { return content + value(v); }
        F derive(F dl, int v) { return ByDistance::derive(dl, v), F{}; }
    };
};

// s + q·e[min(i − j, R)]
struct Relative : Policy {
    static constexpr bool NORMALISED = true, COUNTS = false;
    PositionLogits at_distance;
    void place(Arena& arena, const Call&, const Shared& shared, bool backward) {
        at_distance.place(arena, shared.relative, TILE, TILE, backward);
    }
    void begin(const Scan& scan) { at_distance.begin(*scan.q, scan.query); }
    void finish(const Scan& scan, float* grad_query, Partial& partial) {
        at_distance.finish(*scan.q, scan.query, grad_query, partial.relative);
    }

    struct Row : ByDistance {
        Row(Relative& policy, const Scan& scan, Partial* partial, int r)
            : ByDistance(policy.at_distance.row(r),
                         partial ? policy.at_distance.grad_row(r) : nullptr,
                         policy.at_distance.last(), scan.q->position[r] - scan.sight->newest) {}
        F logit(F content, int v) { return content + value(v); }
        F derive(F dl, int v) { return ByDistance::derive(dl, v), F{}; }
    };
};

} // namespace
} // namespace milepost
