// Kernel: the sum over ranks (comm/rank_sum.h), in their order.
#pragma once
#include "weft/ops/cuda/elements.h"

namespace weft::gpu {

inline constexpr int kMostRanks = 128;

// A block for each run of elements. f64 and f32 are added as they are, 16-bit floats in f32.
template <class T>
struct RankSum {
  const T* from[kMostRanks];
  int num_ranks;
  T* out;  // none: in place of every one of them
  int64_t n;
  static constexpr int64_t kRun = kAtOnce * kThreads;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t first = block.index() * kRun;
    block.map(
        n - first < kRun ? n - first : kRun,
        [&](int64_t i) {
          auto sum = number(from[0] + first + i);
          for (int r = 1; r < num_ranks; ++r) sum += number(from[r] + first + i);
          return sum;
        },
        [&](int64_t i, auto sum) {
          if (out != nullptr) return put(out + first + i, sum);
          for (int r = 0; r < num_ranks; ++r) put(const_cast<T*>(from[r]) + first + i, sum);
        });
  }

 private:
  WEFT_GPU static auto number(const T* at) {
    if constexpr (sizeof(T) == 2)
      return load(at);
    else
      return *at;
  }
  template <class Sum>
  WEFT_GPU static void put(T* at, Sum sum) {
    if constexpr (sizeof(T) == 2)
      store(at, sum);
    else
      *at = sum;
  }
};

}  // namespace weft::gpu
