// What Python hands to a kernel, and what a kernel is.
//
// Everything here is seen by code for several instruction sets. Keep it to declarations and plain
// data: an inline function would be compiled for each, and the linker would keep any one of them.
//
//   B batch   H query heads   G key heads   S queries   T keys   D head_dim   V head_dim of values
#pragma once

#include <cstdint>

namespace milepost {

enum class Op : int {
    softmax,
    bias_table,
    bias_dense,
    relative,
    cope,
    cope_alibi,
    forgetting,
    stick_breaking,
};

// A (batch, heads, time, width) operand, fp32 or bf16, its last axis contiguous; strides in
// elements
struct Operand {
    const void* data = nullptr;
    long batch = 0, head = 0, time = 0;
    bool bfloat16 = false;
};

// fp32 rows shared by the heads (head = 0), or with a stride from head to head
struct Table {
    const float* data = nullptr;
    long rows = 0, head = 0;
    float* grad = nullptr; // of the same shape
};

struct Call {
    Op op;
    long B, H, G, S, T, D, V;
    Operand query, key, value, gate_keys, position_query, grad_out;
    const int64_t* start = nullptr;    // (B, S)
    Table table, relative;             // (rows, D)
    const float* bias_table = nullptr; // (H, bias_rows)
    long bias_rows = 0;
    Operand bias;                  // dense, by batch, head and query; strides 0 where shared
    const float* slopes = nullptr; // (H)
    const double* decay = nullptr; // (B, H, T): the running sum of log f
    float scale = 1, gate_scale = 1, position_scale = 1;
    bool attend_current = false;
    bool skip = true;    // leave out tiles that add nothing
    bool poison = false; // fill scratch with NaN first: tests
    int threads = 1;

    float* out = nullptr; // (B, H, S, V)
    // (B, H, S): the stick's remainder. Or (2, B, H, S): a logit t of the row, in base 2, and
    // 1 / Σ 2^(logit − t). Their logarithms in one number would lose the sum beside a large logit.
    float* residual = nullptr;

    const float* grad_residual = nullptr; // (B, H, S): of the remainder
    float *grad_query = nullptr, *grad_key = nullptr, *grad_value = nullptr;
    float *grad_gate_keys = nullptr, *grad_position_query = nullptr;
    float *grad_bias_table = nullptr, *grad_bias = nullptr, *grad_slopes = nullptr;
    float* grad_decay = nullptr;
};

struct Kernels {
    const char* name;
    void (*forward)(const Call&);
    void (*backward)(const Call&);
};

// Which of these are compiled is decided in CMakeLists.txt
extern const Kernels* const kernels_x86_64_v4;
extern const Kernels* const kernels_x86_64_v3;
extern const Kernels* const kernels_arm64;
extern const Kernels* const kernels_baseline;

} // namespace milepost
