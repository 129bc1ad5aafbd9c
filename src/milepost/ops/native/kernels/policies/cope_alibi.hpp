// CoPE with slopes: the logit falls or rises with the count.
#pragma once

#include "counts.hpp"

namespace milepost {
namespace {

// s + m_h · c, c ← c + σ(gate)
struct CopeAlibi : Policy {
    static constexpr bool NORMALISED = true, COUNTS = true;
    Counts counts;
    void place(Arena& arena, const Call&, const Shared&, bool) { counts.place(arena); }
    void begin(const Scan&) { counts.begin(); }
    bool saturated(int) const { return false; }

    struct Row {
        Counts::Row counting;
        float slope;
        float* grad;
        F count[VECTORS], sum{};
        Row(CopeAlibi& policy, const Scan& scan, Partial* partial, int r)
            : counting(policy.counts, scan, r),
              slope(scan.call.slopes[scan.q->head[r]] * LOG2_E),
              grad(partial ? partial->slope : nullptr) {}
        F logit(F content, int v) {
            const F further = counting.count(v);
            counting.carry = last_lane(further);
            count[v] = float(counting.whole) + further;
            return content + slope * count[v];
        }
        F derive(F dl, int v) {
            sum += dl * count[v];
            return dl * slope;
        }
        void end() {
            counting.end();
            if (grad) *grad += total(sum);
        }
    };
    using Saturated = Row;
};

} // namespace
} // namespace milepost
