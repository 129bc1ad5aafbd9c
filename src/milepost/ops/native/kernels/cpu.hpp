// Which of the compiled variants this CPU runs.

#pragma once

#include <vector>

#include "interface.hpp"

namespace milepost {

// The variants that are compiled in and that this CPU and its operating system run, fastest first.
const std::vector<const Kernels*>& runnable();

// The runnable variant of that name; nullptr if there is none.
const Kernels* find(const char* name);

} // namespace milepost
