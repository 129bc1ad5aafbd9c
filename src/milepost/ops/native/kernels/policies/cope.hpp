// CoPE: the logit gets what a table holds at the count.
#pragma once

#include "by_distance.hpp"
#include "counts.hpp"

namespace milepost {
namespace {

// s + z_i[min(c, P)], linearly interpolated, c ← c + σ(gate)
struct Cope : Policy {
    static constexpr bool NORMALISED = true, COUNTS = true;
    Counts counts;
    PositionLogits at_count, at_distance;
    bool relative = false;
    void place(Arena& arena, const Call& call, const Shared& shared, bool backward) {
        counts.place(arena);
        at_count.place(arena, shared.table, 0, 3 * LANES, backward);
        relative = call.relative.data;
        if (relative) at_distance.place(arena, shared.relative, TILE, TILE, backward);
    }
    void begin(const Scan& scan) {
        counts.begin();
        at_count.begin(*scan.q, scan.query);
        if (relative) at_distance.begin(*scan.q, scan.query);
    }
    void finish(const Scan& scan, float* grad_query, Partial& partial) {
        at_count.finish(*scan.q, scan.query, grad_query, partial.table);
        if (relative) at_distance.finish(*scan.q, scan.query, grad_query, partial.relative);
    }
    // Past P every position is P: gates no longer matter, to this key and to all older ones
    bool saturated(int r) const { return counts.whole[r] >= at_count.last(); }

    struct Distance {
        bool on;
        ByDistance row;
        Distance(Cope& policy, const Scan& scan, Partial* partial, int r)
            : on(policy.relative),
              row(on ? policy.at_distance.row(r) : nullptr,
                  on && partial ? policy.at_distance.grad_row(r) : nullptr,
                  on ? policy.at_distance.last() : 0, scan.q->position[r] - scan.sight->newest) {}
    };

    struct Row {
        Counts::Row counting;
        Distance distance;
        const float* z;
        float* grad;
        int last;
        I floor[VECTORS];
        F part[VECTORS], slope[VECTORS];
        int offset[VECTORS];
        float* run =
            nullptr; // gradient of the entry that the last lanes all stood on, not yet added:
        F run_below{}, run_above{};

        Row(Cope& policy, const Scan& scan, Partial* partial, int r)
            : counting(policy.counts, scan, r),
              distance(policy, scan, partial, r),
              z(policy.at_count.row(r)),
              grad(partial ? policy.at_count.grad_row(r) : nullptr),
              last(int(policy.at_count.last())) {}

        F logit(F content, int v) {
            const F count = counting.count(v);
            const int below = whole_part(counting.carry[0]);
            offset[v] = int(least(counting.whole + below, last));
            counting.carry = last_lane(count);
            // NaN counts as 0 here: an index must be one, and the logit is NaN all the same
            const I whole = __builtin_convertvector(max(count, F{}), I);
            part[v] = count - __builtin_convertvector(whole, F);
            floor[v] = whole > below ? whole - below : I{};
            const F z_below = lookup(z + offset[v], floor[v]),
                    z_above = lookup(z + offset[v], floor[v] + 1);
            slope[v] = z_above - z_below;
            F logit = content + (z_below + part[v] * slope[v]);
            if (distance.on) logit += distance.row.value(v);
            return logit;
        }
        // At a whole count the slope is 0, as in the paper's listing
        F derive(F dl, int v) {
            const F above = dl * part[v], below = dl - above;
            if (any(floor[v] != splat(floor[v][0]))) {
                scatter_add(grad + offset[v], floor[v], below, above);
            } else {
                float* const at = grad + offset[v] + floor[v][0];
                if (at != run) end_run(), run = at;
                run_below += below, run_above += above;
            }
            if (distance.on) distance.row.derive(dl, v);
            return select(part[v] > 0.0f, dl * slope[v], F{});
        }
        void end_run() {
            if (!run) return;
            run[0] += total(run_below), run[1] += total(run_above);
            run_below = run_above = F{};
        }
        void end() {
            end_run();
            counting.end();
            if (distance.on) distance.row.end();
        }
    };

    struct Saturated {
        F z;
        float* grad;
        F sum{};
        Distance distance;
        Saturated(Cope& policy, const Scan& scan, Partial* partial, int r)
            : z(splat(policy.at_count.row(r)[policy.at_count.last()])),
              grad(partial ? policy.at_count.grad_row(r) + policy.at_count.last() : nullptr),
              distance(policy, scan, partial, r) {}
        F logit(F content, int v) {
            F logit = content + z;
            if (distance.on) logit += distance.row.value(v);
            return logit;
        }
        F derive(F dl, int v) {
            sum += dl;
            if (distance.on) distance.row.derive(dl, v);
            return F{};
        }
        void end() {
            if (grad) *grad += total(sum);
            if (distance.on) distance.row.end();
        }
    };
};

} // namespace
} // namespace milepost
