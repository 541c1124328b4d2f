// Work spread over threads, for host-side loops outside of a step (a step's kernels have their backend's own threads).
#pragma once
#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>

#include "weft/base/threads.h"

namespace weft {

// Calls f(begin, end) on disjoint ranges that cover [0, n), on up to num_threads threads; ranges are multiples of
// `grain`. Blocks; the first exception is rethrown. Throws Error if threads cannot be started: some ranges are then
// skipped.
template <class F>
void parallel_for(int64_t n, int num_threads, int64_t grain, const F& f) {
  const int64_t grains = (n + grain - 1) / grain;
  const int64_t workers = std::clamp<int64_t>(num_threads, 1, std::max<int64_t>(grains, 1));
  std::exception_ptr failure;
  std::mutex mutex;
  Threads threads;
  for (int64_t w = 0; w < workers; ++w) {
    const int64_t begin = std::min(n, grains * w / workers * grain),
                  end = std::min(n, grains * (w + 1) / workers * grain);
    threads.start([&f, &failure, &mutex, begin, end] {
      try {
        if (begin < end) f(begin, end);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    });
  }
  threads.wait_all();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace weft
