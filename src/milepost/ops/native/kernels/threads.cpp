#include "threads.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <link.h>
#elif defined(__APPLE__)
#include <mach-o/dyld.h>
#endif

namespace milepost {
namespace {

struct Queue {
    std::atomic<long> next;
    std::atomic<int> threads;
    long items;
    void (*work)(void* context, long item, int thread);
    void* context;
};

// What each thread of a team runs.
void drain(void* data) {
    Queue& queue = *static_cast<Queue*>(data);
    const int thread = queue.threads.fetch_add(1, std::memory_order_relaxed);
    for (;;) {
        const long item = queue.next.fetch_add(1, std::memory_order_relaxed);
        if (item >= queue.items) return;
        queue.work(queue.context, item, thread);
    }
}

// GCC's entry point of a parallel region. LLVM's and Intel's runtimes have it too.
using Team = void (*)(void (*)(void*), void*, unsigned threads, unsigned flags);

Team symbol(void* handle) { return reinterpret_cast<Team>(dlsym(handle, "GOMP_parallel")); }

// The entry point in the loaded library of that path, if it is an OpenMP runtime.
Team in_library(const char* path) {
    const char* slash = std::strrchr(path, '/');
    const char* name = slash == nullptr ? path : slash + 1;
    for (const char* runtime : {"libgomp", "libomp", "libiomp5"}) {
        if (std::strncmp(name, runtime, std::strlen(runtime)) != 0) continue;
        // NOLOAD: only what is there already. The handle is kept, so the library stays.
        if (void* handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD)) return symbol(handle);
    }
    return nullptr;
}

// First where PyTorch's own calls find it, then among all that is loaded.
Team look_up() {
    if (Team team = symbol(RTLD_DEFAULT)) return team;
    Team team = nullptr;
#if defined(__linux__)
    // Names first: a library that is opened within the callback could wait for its lock for ever
    std::vector<std::string> paths;
    dl_iterate_phdr(
        [](dl_phdr_info* library, size_t, void* paths) {
            static_cast<std::vector<std::string>*>(paths)->emplace_back(library->dlpi_name);
            return 0;
        },
        &paths);
    for (size_t i = 0; team == nullptr && i < paths.size(); ++i)
        team = in_library(paths[i].c_str());
#elif defined(__APPLE__)
    for (uint32_t image = 0; team == nullptr && image < _dyld_image_count(); ++image) {
        if (const char* path = _dyld_get_image_name(image)) team = in_library(path);
    }
#endif
    return team;
}

// Where no thread can be had, those there are do the work: the caller is always one.
void with_new_threads(int threads, Queue& queue) {
    std::vector<std::thread> others;
    try {
        others.reserve(threads - 1);
        while (static_cast<int>(others.size()) < threads - 1) others.emplace_back(drain, &queue);
    } catch (const std::exception&) {
    }
    drain(&queue);
    for (std::thread& other : others) other.join();
}

} // namespace

void parallel(int threads, long items, void (*work)(void* context, long item, int thread),
              void* context) {
    if (threads <= 1 || items <= 1) {
        for (long item = 0; item < items; ++item) work(context, item, 0);
        return;
    }
    threads = static_cast<int>(std::min<long>(threads, items));
    Queue queue{{0}, {0}, items, work, context};
    static const Team team = look_up();
    if (team != nullptr) {
        team(drain, &queue, static_cast<unsigned>(threads), 0);
    } else {
        with_new_threads(threads, queue);
    }
}

} // namespace milepost
