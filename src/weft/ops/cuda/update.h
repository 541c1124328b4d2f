// Kernels: reductions of whole tensors, and optimizers.
#pragma once
#include <cmath>

#include "weft/ops/cuda/elements.h"
#include "weft/ops/ops.h"

namespace weft::gpu {

// parts[block] = the sum of f over a run of elements.
inline constexpr int64_t kReduceRun = 64 * kThreads;
template <class T, class F>
struct RunSums {
  const T* x;
  int64_t n;
  double* parts;
  F f;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t first = block.index() * kReduceRun, count = n - first < kReduceRun ? n - first : kReduceRun;
    const double sum = block.fold(count, 0.0, AddUp(), [&](int64_t i) { return f(x[first + i]); });
    block.each(1, [&](int64_t) { parts[block.index()] = sum; });
  }
};
struct AsItIs {
  WEFT_GPU double operator()(float x) const { return x; }
  WEFT_GPU double operator()(double x) const { return x; }
};
struct IsNotFinite {
  template <class T>
  WEFT_GPU double operator()(T x) const {
    const float value = load(&x);
    return value - value == 0 ? 0.0 : 1.0;
  }
};

// leaves[i] = the sum of squares of kSumLeaf elements. A block has so many leaves, each a warp's.
inline constexpr int64_t kLeavesOfBlock = 8 * kWarps;
template <int N>
struct LeafSquares {
  const float* x;
  int64_t n, num_leaves;
  double* leaves;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t first = block.index() * kLeavesOfBlock;
    const int64_t count = num_leaves - first < kLeavesOfBlock ? num_leaves - first : kLeavesOfBlock;
    block.fold_rows(
        count, kSumLeaf / N, 0.0, AddUp(),
        [&](int64_t r, int64_t p) {
          const int64_t at = (first + r) * kSumLeaf + p * N;
          double sum = 0;
          if (at >= n) return sum;
          const Pack<N> some = load_some<N>(x + at, n - at, 0);
          WEFT_UNROLL
          for (int u = 0; u < N; ++u) sum += double(some.v[u]) * some.v[u];
          return sum;
        },
        [&](int64_t r, double sum) { leaves[first + r] = sum; });
  }
};
// Neighbours are added, then pairs of neighbours, and so on, by each block in a run of parts, which it overwrites:
// totals[block] is the sum of them.
inline constexpr int64_t kTreeRun = 8 * kThreads;
static_assert((kTreeRun & (kTreeRun - 1)) == 0, "runs are nodes of the tree");
struct TreeTotals {
  double* parts;
  int64_t n;
  double* totals;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t first = block.index() * kTreeRun, count = n - first < kTreeRun ? n - first : kTreeRun;
    double* const here = parts + first;
    for (int64_t step = 1; step < count; step *= 2)
      block.each((count - step + 2 * step - 1) / (2 * step),
                 [&](int64_t i) { here[2 * step * i] += here[2 * step * i + step]; });
    block.each(1, [&](int64_t) { totals[block.index()] = count > 0 ? here[0] : 0.0; });
  }
};

template <class T>
struct AdamWStep {
  float *w, *m, *v;
  const float* grad;
  T* value;  // or none
  int64_t n;
  float lr, beta1, beta2, eps, weight_decay, grad_scale, inverse_c1, inverse_c2;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t first = block.index() * kRunOfUpdate;
    struct State {
      float w, m, v;
    };
    block.map(
        n - first < kRunOfUpdate ? n - first : kRunOfUpdate,
        [&](int64_t k) {
          const int64_t i = first + k;
          const float g = grad_scale * grad[i];
          State s{w[i], beta1 * m[i] + (1 - beta1) * g, beta2 * v[i] + (1 - beta2) * g * g};
          s.w -= lr * weight_decay * s.w;
          s.w -= lr * (s.m * inverse_c1) / (sqrtf(s.v * inverse_c2) + eps);
          return s;
        },
        [&](int64_t k, State s) {
          const int64_t i = first + k;
          w[i] = s.w, m[i] = s.m, v[i] = s.v;
          if (value != nullptr) store(value + i, s.w);
        });
  }
  static constexpr int64_t kRunOfUpdate = kAtOnce * kThreads;
};

template <class T>
struct SgdStep {
  float *w, *buf;
  const float* grad;
  T* value;  // or none
  int64_t n;
  float lr, momentum, weight_decay, grad_scale;
  bool first_step;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t first = block.index() * kRunOfUpdate;
    struct State {
      float w, buf;
    };
    block.map(
        n - first < kRunOfUpdate ? n - first : kRunOfUpdate,
        [&](int64_t k) {
          const int64_t i = first + k;
          const float g = grad_scale * grad[i] + weight_decay * w[i];
          const float moved = first_step ? g : momentum * buf[i] + g;
          return State{w[i] - lr * moved, moved};
        },
        [&](int64_t k, State s) {
          const int64_t i = first + k;
          w[i] = s.w, buf[i] = s.buf;
          if (value != nullptr) store(value + i, s.w);
        });
  }
  static constexpr int64_t kRunOfUpdate = kAtOnce * kThreads;
};

}  // namespace weft::gpu
