// Spreads the work of one op over the backend's threads. Results do not depend on their number.
#pragma once
#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

// Calls f(range) on disjoint ranges that cover [0, n), one for each thread; their ends are multiples of `grain`.
// f does not throw.
template <class F>
void for_ranges(int threads, int64_t n, int64_t grain, const F& f) {
  const int64_t grains = (n + grain - 1) / grain, team = std::min<int64_t>(threads, grains);
  if (team <= 1) {
    if (n > 0) f(Range{0, n});
    return;
  }
#pragma omp parallel for num_threads(int(team)) schedule(static, 1)
  for (int64_t w = 0; w < team; ++w)
    f(Range{std::min(n, grains * w / team * grain), std::min(n, grains * (w + 1) / team * grain)});
}

// Calls f(task, thread) for every task of [0, n), taken in this order by the threads as they become free.
// thread is in [0, threads). f does not throw.
template <class F>
void for_tasks(int threads, int64_t n, const F& f) {
  const int64_t team = std::min<int64_t>(threads, n);
  if (team <= 1) {
    for (int64_t task = 0; task < n; ++task) f(task, 0);
    return;
  }
#pragma omp parallel for num_threads(int(team)) schedule(dynamic, 1)
  for (int64_t task = 0; task < n; ++task) f(task, omp_get_thread_num());
}

// Rows cut for a sum over them: the same chunks for any number of threads, so the same bits.
struct Chunks {
  int64_t rows = 0;
  static constexpr int64_t kMost = 64, kFewRows = 16;
  int64_t count() const { return std::clamp<int64_t>(rows / kFewRows, 1, kMost); }
  Range operator[](int64_t i) const { return {rows * i / count(), rows * (i + 1) / count()}; }
};

}  // namespace weft::cpu
