// Kernels: optimizer state in 8 bits, a block of threads for each code block.
#pragma once
#include <cmath>

#include "weft/ops/cuda/elements.h"
#include "weft/ops/ops.h"

namespace weft::gpu {

// Where elements of a code block lie here (CodeBlocks, on a GPU).
struct CodeBlockHere {
  int64_t block, origin, cols, stride, first, n;
  // The place here of the block's t-th element, or -1.
  WEFT_GPU int64_t place_of(int64_t t) const {
    const int64_t in_part = block * kCodeBlock + t - origin;
    if (in_part < 0) return -1;
    int64_t i = in_part;
    if (stride != cols) {  // else without a division, which takes as long as all the rest
      if (in_part % stride >= cols) return -1;
      i = in_part / stride * cols + in_part % stride;
    }
    i -= first;
    return i >= 0 && i < n ? i : -1;
  }
};

struct Moments {
  float m, v;
};
struct LargerOfEach {
  WEFT_GPU Moments operator()(Moments a, Moments b) const { return {Larger()(a.m, b.m), Larger()(a.v, b.v)}; }
};
struct CodeLevels {
  const float *m, *v;
};

struct MomentCodes {
  const float* grad;
  uint8_t *m, *v;
  float *m_absmax, *v_absmax, *m_max, *v_max;
  int64_t first_block, origin, cols, stride, first, n;
  float beta1, beta2, grad_scale;
  float all_levels[2 * kCodes];  // of m, then of v
  WEFT_GPU CodeBlockHere here(int64_t b) const { return {first_block + b, origin, cols, stride, first, n}; }
  // In memory that answers all threads at once, whichever level each of them asks for.
  template <class Block>
  WEFT_GPU CodeLevels levels(const Block& block) const {
    static_assert(2 * kCodes <= kNumbers);
    float* const to = block.numbers();
    block.each(2 * kCodes, [&](int64_t i) { to[i] = all_levels[i]; });
    return {to, to + kCodes};
  }
  WEFT_GPU Moments next(const CodeLevels& levels, int64_t b, int64_t i) const {
    const float g = grad_scale * grad[i];
    return {beta1 * (levels.m[m[i]] * m_absmax[b]) + (1 - beta1) * g,
            beta2 * (levels.v[v[i]] * v_absmax[b]) + (1 - beta2) * g * g};
  }
};
template <class Op>
MomentCodes moment_codes(const Op& op) {
  MomentCodes c{.grad = flat<float>(op.grad),
                .m = flat<uint8_t>(op.m),
                .v = flat<uint8_t>(op.v),
                .m_absmax = flat<float>(op.m_absmax),
                .v_absmax = flat<float>(op.v_absmax),
                .m_max = flat<float>(op.m_max),
                .v_max = flat<float>(op.v_max),
                .first_block = op.at.first_block(),
                .origin = op.at.origin,
                .cols = op.at.cols,
                .stride = op.at.stride,
                .first = op.at.first,
                .n = op.grad.elements(),
                .beta1 = float(op.beta1),
                .beta2 = float(op.beta2),
                .grad_scale = float(op.grad_scale),
                .all_levels = {}};
  for (size_t i = 0; i < kCodes; ++i)
    c.all_levels[i] = kLevelsWithSign[i], c.all_levels[kCodes + i] = kLevelsWithoutSign[i];
  return c;
}

struct MomentMaxima {
  MomentCodes codes;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t b = block.index();
    const CodeBlockHere here = codes.here(b);
    const CodeLevels levels = codes.levels(block);
    const Moments most = block.fold(kCodeBlock, Moments{0, 0}, LargerOfEach(), [&](int64_t t) {
      const int64_t i = here.place_of(t);
      if (i < 0) return Moments{0, 0};
      const Moments next = codes.next(levels, b, i);
      return Moments{fabsf(next.m), fabsf(next.v)};
    });
    block.each(1, [&](int64_t) { codes.m_max[b] = most.m, codes.v_max[b] = most.v; });
  }
};

// The code of the level nearest to x, the lower one of two.
WEFT_GPU inline uint8_t nearest_code(const float* levels, float x) {
  int low = 0, high = kCodes - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if ((levels[middle] + levels[middle + 1]) / 2 < x)
      low = middle + 1;
    else
      high = middle;
  }
  return uint8_t(low);
}

template <class T>
struct AdamW8Step {
  MomentCodes codes;
  float* w;
  T* value;  // or none
  float lr, eps, weight_decay, inverse_c1, inverse_c2;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t b = block.index();
    const CodeBlockHere here = codes.here(b);
    const CodeLevels levels = codes.levels(block);
    const float m_max = codes.m_max[b], v_max = codes.v_max[b];
    block.each(kCodeBlock, [&](int64_t t) {
      const int64_t i = here.place_of(t);
      if (i < 0) return;
      const auto [m, v] = codes.next(levels, b, i);
      float wi = w[i];
      wi -= lr * weight_decay * wi;
      wi -= lr * (m * inverse_c1) / (sqrtf(v * inverse_c2) + eps);
      w[i] = wi;
      if (value != nullptr) store(value + i, wi);
      codes.m[i] = nearest_code(levels.m, m_max > 0 ? m / m_max : m);
      codes.v[i] = nearest_code(levels.v, v_max > 0 ? v / v_max : v);
    });
    block.each(1, [&](int64_t) { codes.m_absmax[b] = m_max, codes.v_absmax[b] = v_max; });
  }
};

struct LargestOfRows {
  Rows<const float> x;
  int64_t rows;
  WEFT_GPU float operator()(int64_t, int64_t j) const {
    float most = x[0][j];
    for (int64_t r = 1; r < rows; ++r) most = Larger()(most, x[r][j]);
    return most;
  }
};

}  // namespace weft::gpu
