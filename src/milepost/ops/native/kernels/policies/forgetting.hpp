// FoX: the logit falls by what was forgotten since the key.
#pragma once

#include "../policy.hpp"

namespace milepost {
namespace {

// s + Λ_i − Λ_j
struct Forgetting : Policy {
    static constexpr bool NORMALISED = true, COUNTS = false;
    float* of_key = nullptr; // Λ_m − Λ_j over the keys j of this tile, the newest of which is m
    float* sum = nullptr;    // backward: Σ_j ∂loss/∂logit_ij, 0 but for rounding
    void place(Arena& arena, const Call&, const Shared&, bool) {
        of_key = arena.floats(TILE * TILE);
        sum = arena.floats(TILE);
    }
    void begin(const Scan&) { clear(sum, TILE); }
    const double* sums(const Scan& scan, int r) const {
        return scan.call.decay + (scan.q->b * scan.call.H + scan.q->head[r]) * scan.call.T;
    }
    int key_row(const Scan& scan, int r) const { return int(scan.q->head[r] - scan.q->head[0]); }
    static float in_base_2(double decay) { return float(decay * 1.4426950408889634); }
    void tile(const Scan& scan) {
        const long newest = scan.sight->newest;
        for (int r = 0; r < scan.q->rows; r += scan.q->queries) {
            const double* lambda = sums(scan, r);
            float* to = of_key + key_row(scan, r) * TILE;
            for (int n = 0; n < TILE; n++)
                to[n] = n < scan.sight->count ? in_base_2(lambda[newest] - lambda[newest - n]) : 0;
        }
    }
    // The running sums of the caller add these up over the rows: left out, their rounding would too
    void finish(const Scan& scan, float*, Partial& partial) {
        for (int r = 0; r < scan.q->rows; r++) {
            const long tile = scan.q->position[r] / TILE,
                       newest = least((tile + 1) * TILE, scan.call.T) - 1;
            if (scan.q->start[r] <= scan.q->position[r])
                partial.decay[tile * TILE - partial.first + newest - scan.q->position[r]] += sum[r];
        }
    }

    // Λ_i − Λ_j = (Λ_i − Λ_m) + (Λ_m − Λ_j), of which neither cancels the other as long as the row
    // is not older than m. A row that is, on the diagonal, has differences of its own.
    struct Row {
        F of_row, row_sum{};
        const float* of_key;
        float *grad, *sum;
        float own[TILE];
        Row(Forgetting& policy, const Scan& scan, Partial* partial, int r)
            : of_row{},
              of_key(own),
              grad(partial ? partial->decay + (scan.tile * TILE - partial->first) : nullptr),
              sum(partial ? policy.sum + r : nullptr) {
            const double* lambda = policy.sums(scan, r);
            const long newest = scan.sight->newest, position = scan.q->position[r];
            if (position >= newest) {
                of_row = splat(in_base_2(lambda[position] - lambda[newest]));
                of_key = policy.of_key + policy.key_row(scan, r) * TILE;
            } else {
                const long unseen = newest - position;
                for (int n = 0; n < TILE; n++)
                    own[n] = n >= unseen && n < scan.sight->count
                                 ? in_base_2(lambda[position] - lambda[newest - n])
                                 : 0;
            }
        }
        F logit(F content, int v) { return content + (of_row + load(of_key + v * LANES)); }
        F derive(F dl, int v) {
            store(grad + v * LANES, load(grad + v * LANES) - dl);
            row_sum += dl;
            return F{};
        }
        void end() {
            if (sum) *sum += total(row_sum);
        }
    };
};

} // namespace
} // namespace milepost
