// Work on several threads: those that PyTorch has already.

#pragma once

namespace milepost {

// Calls work(context, item, thread) for every item from 0 to items - 1, on up to `threads` threads
// including the caller, and returns when all are done. Items are begun in order. `thread` numbers
// the threads of this call from 0. `work` must not throw.
//
// The threads are those of the OpenMP runtime that PyTorch has loaded, so that there is one pool in
// the process and not two that compete for its cores; new ones where there is no such runtime.
// Inside an OpenMP parallel region the caller does all the work, as OpenMP itself would have it.
void parallel(int threads, long items, void (*work)(void* context, long item, int thread),
              void* context);

} // namespace milepost
