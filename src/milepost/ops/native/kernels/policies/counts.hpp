// What CoPE carries: the sum of the gates so far.
#pragma once

#include "../policy.hpp"

namespace milepost {
namespace {

// The gates' running sum along a row, as a whole number and what is above it
struct Counts {
    int* whole = nullptr;
    float* fraction = nullptr;
    void place(Arena& arena) {
        whole = arena.take<int>(TILE);
        fraction = arena.floats(TILE);
    }
    void begin() {
        for (int r = 0; r < TILE; r++) whole[r] = 0, fraction[r] = 0;
    }

    struct Row {
        int& whole;
        float& fraction;
        const float* gates;
        F carry;
        Row(Counts& counts, const Scan& scan, int r)
            : whole(counts.whole[r]),
              fraction(counts.fraction[r]),
              gates(scan.gates + r * TILE),
              carry(splat(fraction)) {}
        // The count of each key of vector v, less `whole`
        F count(int v) const { return carry + running_sum(load(gates + v * LANES)); }
        void end() {
            const float sum = carry[0];
            const int more = whole_part(sum);
            whole += more;
            fraction = sum - float(more);
        }
    };
};

} // namespace
} // namespace milepost
