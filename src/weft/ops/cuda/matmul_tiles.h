// Kernel: a matrix product where the library has none, and what the library is checked against.
#pragma once
#include "weft/ops/cuda/elements.h"

namespace weft::gpu {

// Sums over k in order, in f32. A block for each tile of 16 x 16.
template <class T, class Out>
struct MatmulTile {
  static constexpr int64_t kSide = 16;
  static_assert(kSide * kSide == kThreads);
  Rows<const T> a, b;
  Rows<Out> out;
  const T* bias;
  int64_t m, k;
  bool trans_a, trans_b, accumulate;
  WEFT_BOTH int64_t tiles_of_row() const { return (out.cols + kSide - 1) / kSide; }
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t row = block.index() / tiles_of_row() * kSide, col = block.index() % tiles_of_row() * kSide;
    block.each(kThreads, [&](int64_t t) {
      const int64_t i = row + t / kSide, j = col + t % kSide;
      if (i >= m || j >= out.cols) return;
      float sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += load(trans_a ? a[p] + i : a[i] + p) * load(trans_b ? b[j] + p : b[p] + j);
      if (bias != nullptr) sum += load(bias + j);
      store(out[i] + j, accumulate ? sum + load(out[i] + j) : sum);
    });
  }
};

}  // namespace weft::gpu
