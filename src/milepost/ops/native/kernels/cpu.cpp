#include "cpu.hpp"

#include <cstring>

namespace milepost {
namespace {

// The builtins ask the CPU (CPUID) and the operating system (XGETBV), so that a level counts as
// there only where its registers survive a switch of threads.

#if defined(MILEPOST_COMPILED_x86_64_v4)
bool runs_x86_64_v4() {
#if defined(MILEPOST_CPU_LEVELS)
    return __builtin_cpu_supports("x86-64-v4");
#else
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx2") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma");
#endif
}
#endif

#if defined(MILEPOST_COMPILED_x86_64_v3)
bool runs_x86_64_v3() {
#if defined(MILEPOST_CPU_LEVELS)
    return __builtin_cpu_supports("x86-64-v3");
#else
    // Every CPU with these three has the level's F16C, LZCNT and MOVBE, which older compilers have
    // no name for.
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
           __builtin_cpu_supports("fma");
#endif
}
#endif

std::vector<const Kernels*> ask() {
    std::vector<const Kernels*> found;
#if defined(MILEPOST_COMPILED_x86_64_v4)
    if (runs_x86_64_v4()) found.push_back(kernels_x86_64_v4);
#endif
#if defined(MILEPOST_COMPILED_x86_64_v3)
    if (runs_x86_64_v3()) found.push_back(kernels_x86_64_v3);
#endif
#if defined(MILEPOST_COMPILED_arm64)
    found.push_back(kernels_arm64);
#endif
    found.push_back(kernels_baseline);
    return found;
}

} // namespace

const std::vector<const Kernels*>& runnable() {
    static const std::vector<const Kernels*> found = ask();
    return found;
}

const Kernels* find(const char* name) {
    for (const Kernels* kernels : runnable()) {
        if (std::strcmp(kernels->name, name) == 0) return kernels;
    }
    return nullptr;
}

} // namespace milepost
