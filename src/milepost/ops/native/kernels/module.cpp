// The Python module milepost.ops.native._kernels. Its types are in _kernels.pyi.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "cpu.hpp"
#include "threads.hpp"

namespace nb = nanobind;

namespace milepost {
namespace {

std::vector<std::string> variants() {
    std::vector<std::string> names;
    for (const Kernels* kernels : runnable()) names.emplace_back(kernels->name);
    return names;
}

// Operands come as plain numbers, which costs a call less than tensors would: _scan.py, which makes
// them, has checked shapes, types and strides, and holds the tensors while the call runs.
class Operands {
  public:
    explicit Operands(const nb::dict& given) : given_(given) {}

    template <class X>
    X* address(const char* name) const {
        const nb::handle value = find(name);
        return value.is_valid() ? reinterpret_cast<X*>(nb::cast<std::uintptr_t>(value)) : nullptr;
    }
    // (address, stride of batch, of heads, of time, whether bfloat16)
    Operand operand(const char* name) const {
        const nb::handle value = find(name);
        if (!value.is_valid()) return {};
        const auto [data, batch, head, time, bfloat16] =
            nb::cast<std::tuple<std::uintptr_t, long, long, long, bool>>(value);
        return {reinterpret_cast<const void*>(data), batch, head, time, bfloat16};
    }
    // (address, rows, stride of heads, address of the gradient or 0)
    Table table(const char* name) const {
        const nb::handle value = find(name);
        if (!value.is_valid()) return {};
        const auto [data, rows, head, grad] =
            nb::cast<std::tuple<std::uintptr_t, long, long, std::uintptr_t>>(value);
        return {reinterpret_cast<const float*>(data), rows, head, reinterpret_cast<float*>(grad)};
    }
    template <class X>
    X number(const char* name) const {
        return nb::cast<X>(given_[name]);
    }

  private:
    nb::handle find(const char* name) const { return PyDict_GetItemString(given_.ptr(), name); }
    const nb::dict& given_;
};

void run(const std::string& variant, int op, bool backward,
         const std::tuple<long, long, long, long, long, long, long>& sizes, int threads,
         const nb::dict& given) {
    const Kernels* kernels = find(variant.c_str());
    if (kernels == nullptr) throw nb::value_error("this CPU runs no such variant");
    const Operands operands(given);
    Call call;
    call.op = static_cast<Op>(op);
    std::tie(call.B, call.H, call.G, call.S, call.T, call.D, call.V) = sizes;
    call.query = operands.operand("query");
    call.key = operands.operand("key");
    call.value = operands.operand("value");
    call.gate_keys = operands.operand("gate_keys");
    call.position_query = operands.operand("position_query");
    call.bias = operands.operand("bias");
    call.grad_out = operands.operand("grad_out");
    call.start = operands.address<const int64_t>("start");
    call.table = operands.table("table");
    call.relative = operands.table("relative_table");
    const Table by_distance = operands.table("bias_table");
    call.bias_table = by_distance.data;
    call.bias_rows = by_distance.rows;
    call.grad_bias_table = by_distance.grad;
    call.slopes = operands.address<const float>("slopes");
    call.decay = operands.address<const double>("decay");
    call.scale = operands.number<float>("scale");
    call.gate_scale = operands.number<float>("gate_scale");
    call.position_scale = operands.number<float>("position_scale");
    call.attend_current = operands.number<bool>("attend_current");
    call.skip = operands.number<bool>("skip");
    call.poison = operands.number<bool>("poison");
    call.threads = threads;
    call.out = operands.address<float>("out");
    call.residual = operands.address<float>("residual");
    call.grad_residual = operands.address<const float>("grad_residual");
    call.grad_query = operands.address<float>("grad_query");
    call.grad_key = operands.address<float>("grad_key");
    call.grad_value = operands.address<float>("grad_value");
    call.grad_gate_keys = operands.address<float>("grad_gate_keys");
    call.grad_position_query = operands.address<float>("grad_position_query");
    call.grad_bias = operands.address<float>("grad_bias");
    call.grad_slopes = operands.address<float>("grad_slopes");
    call.grad_decay = operands.address<float>("grad_decay");
    const nb::gil_scoped_release release;
    (backward ? kernels->backward : kernels->forward)(call);
}

// Which thread ran each item, for the tests of `parallel`. Every item takes a moment, so that each
// thread gets some, and starts `inner` items of its own.
struct Probe {
    int threads;
    long inner;
    std::vector<std::size_t> ran;
};

std::vector<std::size_t> probe(int threads, long items, long inner) {
    Probe probe{threads, inner, std::vector<std::size_t>(items, 0)};
    parallel(
        threads, items,
        [](void* context, long item, int) {
            Probe& probe = *static_cast<Probe*>(context);
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            std::atomic<long> done{0};
            parallel(
                probe.threads, probe.inner,
                [](void* done, long, int) { ++*static_cast<std::atomic<long>*>(done); }, &done);
            if (done == probe.inner) {
                probe.ran[item] = std::hash<std::thread::id>()(std::this_thread::get_id());
            }
        },
        &probe);
    return probe.ran;
}

#if defined(MILEPOST_SANITIZE)
int overrun(int length) {
    std::vector<int> values(length);
    volatile int* data = values.data();
    data[length] = 1;
    return data[0];
}
#endif

} // namespace
} // namespace milepost

NB_MODULE(_kernels, module) {
    using namespace nb::literals;
    module.def("variants", &milepost::variants);
    module.def("run", &milepost::run, "variant"_a, "op"_a, "backward"_a, "sizes"_a, "threads"_a,
               "operands"_a);
    module.def("probe", &milepost::probe, "threads"_a, "items"_a, "inner"_a = 0,
               nb::call_guard<nb::gil_scoped_release>());
#if defined(MILEPOST_SANITIZE)
    module.def("overrun", &milepost::overrun, "length"_a);
#endif
}
