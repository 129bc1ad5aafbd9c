// A bias for every pair.
#pragma once

#include "../policy.hpp"

namespace milepost {
namespace {

// s + b[b, h, i, j]
struct BiasDense : Policy {
    static constexpr bool NORMALISED = true, COUNTS = false;

    struct Row {
        const float* newest;
        float* grad = nullptr;
        int count;
        Row(BiasDense&, const Scan& scan, Partial* partial, int r) : count(scan.sight->count) {
            const Call& call = scan.call;
            const Operand& bias = call.bias;
            newest = static_cast<const float*>(bias.data) + scan.q->b * bias.batch +
                     scan.q->head[r] * bias.head + scan.q->query[r] * bias.time +
                     scan.sight->newest;
            if (partial && call.grad_bias)
                grad = call.grad_bias + scan.q->row(call, r) * call.T + scan.sight->newest;
        }
        F logit(F content, int v) {
            const int first = v * LANES;
            if (first + LANES <= count)
                return content + in_base_2(reverse(load(newest - first - LANES + 1)));
            for (int i = 0; first + i < count; i++) content[i] += in_base_2(newest[-first - i]);
            return content;
        }
        F derive(F dl, int v) {
            if (!grad) return F{};
            const int first = v * LANES;
            if (first + LANES <= count)
                store(grad - first - LANES + 1, reverse(dl));
            else
                for (int i = 0; first + i < count; i++) grad[-first - i] = dl[i];
            return F{};
        }
        void end() {}
    };
};

} // namespace
} // namespace milepost
