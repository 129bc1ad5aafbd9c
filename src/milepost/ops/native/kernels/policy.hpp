// What one op adds to the scan: what it carries along a row's keys, its logit, and their
// derivatives. Everything is in base 2: logits come in, and go out, times log2 e.
//
// A policy has
//   NORMALISED    softmax (true), or weights that are final as they are made
//   COUNTS        its carry is a sum of gates, so the backward needs a second pass
//   place()       takes scratch memory
//   begin()       a query tile begins
//   tile()        a key tile begins
//   Row(policy, scan, partial, r)  row r within this key tile: vectors 0 … VECTORS − 1 come newest
//                 first; `partial` takes gradients, and is null in the forward
//     logit(content, v)  the logits of vector v
//     derive(dl, v)      takes dl = ∂loss/∂logit; returns ∂loss/∂count where it COUNTS
//     end()              keeps the carry for the next tile
//   finish()      a query tile of the backward ends
// and where it COUNTS also
//   saturated(r)  gates no longer change the logits of row r
//   Saturated     a Row for tiles where that holds for all rows
// One that is not NORMALISED (stick_breaking.hpp) has, in place of logit() and derive(dl, v), the
// weights and their derivatives, and keeps for each row what is left for older keys.
#pragma once

#include "table.hpp"

namespace milepost {
namespace {

constexpr float LOG2_E = 1.44269504088896340736f, LN_2 = 0.69314718055994530942f;

constexpr float NOTHING = 5.9604645e-8f; // 2^-24: what is below it rounds away beside 1

// σ of a logit in base 2
INLINE F sigmoid(F x) {
    const F bounded = splat(126.0f) < -x ? splat(126.0f) : -x;
    return reciprocal(1.0f + exp2(bounded));
}

// A bias in base 2. One that is finite stays so: many a mask is the lowest float, not −∞.
INLINE F in_base_2(F bias) {
    const float largest = 2e38f, none = __builtin_inff();
    F bounded = bias > largest ? splat(largest) : bias;
    bounded = bounded < -largest ? splat(-largest) : bounded;
    return LOG2_E * select((bias == none) | (bias == -none), bias, bounded);
}
INLINE float in_base_2(float bias) { return in_base_2(splat(bias))[0]; }

// A count that may be NaN, as an index
INLINE int whole_part(float x) { return x >= 0 && x < 1e9f ? int(x) : 0; }

// What the policies share with the scan
struct Scan {
    const Call& call;
    const QueryTile* q = nullptr;
    const Sight* sight = nullptr;
    long tile = 0;
    float* gates = nullptr;       // [64, 64] of this key tile
    const float* query = nullptr; // the queries that meet the tables, [rows, whole vectors]
};

// Gradients that one work item gathers for operands that others share
struct Partial {
    long first = 0, keys = 0; // of the item's keys
    float *key = nullptr, *value = nullptr, *gate_keys = nullptr, *table = nullptr,
          *relative = nullptr, *bias_table = nullptr, *decay = nullptr, *slope = nullptr;
};

// Packed once for all
struct Shared {
    PackedTable table, relative;
    float* bias_table = nullptr; // [H, 64 + rows + 64]
    // Of a tile of keys and all older ones
    float* largest_key = nullptr;   // [B, G, tiles]: the longest
    double* lowest_decay = nullptr; // [B, H, tiles]: the lowest Λ
};

// What most policies leave as it is
struct Policy {
    void place(Arena&, const Call&, const Shared&, bool) {}
    void begin(const Scan&) {}
    void tile(const Scan&) {}
    void finish(const Scan&, float*, Partial&) {}
};

} // namespace
} // namespace milepost
