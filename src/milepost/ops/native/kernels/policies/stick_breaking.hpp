// Stick-breaking: what is left of the stick is carried.
#pragma once

#include "../policy.hpp"

namespace milepost {
namespace {

// β Π (1 − β) over newer keys, β = σ(s): what is left of the stick is carried as a product
struct StickBreaking : Policy {
    static constexpr bool NORMALISED = false, COUNTS = false;
    float* left = nullptr;
    float* to_come = nullptr; // backward: Σ u over this key and all older, u = a · ∂loss/∂a
    void place(Arena& arena, const Call&, const Shared&, bool) {
        left = arena.floats(TILE);
        to_come = arena.floats(TILE);
    }
    void begin(const Scan&) { fill(left, 1.0f, TILE); }

    struct Row {
        float &left_after, &to_come_after;
        F left, to_come;
        F beta[VECTORS], weight[VECTORS], u[VECTORS], older{};
        Row(StickBreaking& policy, const Scan&, Partial*, int r)
            : left_after(policy.left[r]),
              to_come_after(policy.to_come[r]),
              left(splat(left_after)),
              to_come(splat(to_come_after)) {}
        // Unseen keys break nothing
        F weigh(F content, int v, bool masked, I seen) {
            const F x = splat(126.0f) < -content ? splat(126.0f) : -content;
            const F e = exp2(x);
            beta[v] = reciprocal(1.0f + e);
            F rest = e * beta[v];
            if (masked) {
                beta[v] = select(seen, beta[v], F{});
                rest = select(seen, rest, splat(1.0f));
            }
            const F product = running_product(rest);
            weight[v] = beta[v] * (left * up<1>(product, splat(1.0f)));
            left *= last_lane(product);
            return weight[v];
        }
        void take(F d_weight, int v) { u[v] = weight[v] * d_weight; }
        // What older tiles have of Σ u: the rest of it, or nothing once the stick is used up, where
        // the difference would be rounding alone
        void settle() {
            F sum{};
            for (int v = 0; v < VECTORS; v++) sum += u[v];
            to_come = left[0] < NOTHING ? F{} : to_come - total(sum);
            older = to_come;
        }
        // ∂loss/∂s = u − β · (Σ u over this key and all older); vectors come oldest first
        F derive(int v) {
            const F sums = older + running_sum_from_oldest(u[v]);
            older = first_lane(sums);
            return u[v] - beta[v] * sums;
        }
        void end() { left_after = left[0]; }
        void end_backward() { to_come_after = to_come[0]; }
    };
};

} // namespace
} // namespace milepost
