#include "scratch.hpp"

#include <atomic>
#include <cstdint>
#include <cstdlib>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace milepost {
namespace {

constexpr long PAGE = 2 << 20;         // a large page
constexpr long KEPT = 128 * (1 << 20); // no larger block is kept

struct Block {
    long size; // at its start, one cache line before what is lent
};

std::atomic<char*> kept{nullptr};

char* allocate(long bytes) {
    const long size = (bytes + PAGE - 1) / PAGE * PAGE;
    char* block = static_cast<char*>(std::aligned_alloc(PAGE, size));
    if (block == nullptr) std::abort();
#if defined(__linux__)
    madvise(block, size, MADV_HUGEPAGE); // only advice: where it is not taken, pages are small
#endif
    reinterpret_cast<Block*>(block)->size = size;
    return block;
}

} // namespace

char* borrow_scratch(long bytes) {
    bytes += 64;
    char* block = kept.exchange(nullptr);
    if (block != nullptr && reinterpret_cast<Block*>(block)->size < bytes) {
        std::free(block);
        block = nullptr;
    }
    if (block == nullptr) block = allocate(bytes);
    return block + 64;
}

void give_back_scratch(char* scratch) {
    char* block = scratch - 64;
    if (reinterpret_cast<Block*>(block)->size <= KEPT) block = kept.exchange(block);
    std::free(block);
}

} // namespace milepost
