// Kernels of one element at a time, or of one row.
#pragma once
#include <cmath>

#include "weft/ops/cuda/elements.h"
#include "weft/ops/cuda/philox.h"
#include "weft/ops/ops.h"

namespace weft::gpu {

// A block has so many elements of a tensor without rows, or one row.
inline constexpr int64_t kRun = 4 * kThreads;

// out[i][j] = f(i, j), a block for each run of a row.
template <class T, class F>
struct EachElement {
  Rows<T> out;
  F f;
  WEFT_BOTH int64_t runs_of_row() const { return (out.cols + kRun - 1) / kRun; }
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t i = block.index() / runs_of_row(), first = block.index() % runs_of_row() * kRun;
    const int64_t n = out.cols - first < kRun ? out.cols - first : kRun;
    block.each(n, [&](int64_t j) { store(out[i] + first + j, f(i, first + j)); });
  }
};

template <class T>
struct Sums {  // a x + b y
  Rows<const T> x, y;
  float a, b;
  WEFT_GPU float operator()(int64_t i, int64_t j) const {
    return y ? a * load(x[i] + j) + b * load(y[i] + j) : a * load(x[i] + j);
  }
};
template <class T>
struct RowAdded {
  Rows<T> y;
  const T* b;
  WEFT_GPU float operator()(int64_t i, int64_t j) const { return load(y[i] + j) + load(b + j); }
};
template <class From>
struct Copied {
  Rows<const From> from;
  WEFT_GPU float operator()(int64_t i, int64_t j) const { return load(from[i] + j); }
};

WEFT_GPU inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

template <class T>
struct SwigluOf {
  Rows<const T> u;
  int64_t f;
  WEFT_GPU float operator()(int64_t i, int64_t j) const {
    const float gate = load(u[i] + j);
    return gate * sigmoid(gate) * load(u[i] + f + j);
  }
};
// A block for each run of a row of da.
template <class T>
struct SwigluSlopes {
  Rows<const T> u, da;
  Rows<T> du;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t f = da.cols, runs = (f + kRun - 1) / kRun, i = block.index() / runs;
    const int64_t first = block.index() % runs * kRun, n = f - first < kRun ? f - first : kRun;
    block.each(n, [&](int64_t k) {
      const int64_t j = first + k;
      const float gate = load(u[i] + j), up = load(u[i] + f + j), d = load(da[i] + j), s = sigmoid(gate);
      store(du[i] + j, d * up * s * (1.0f + gate * (1.0f - s)));
      store(du[i] + f + j, d * gate * s);
    });
  }
};

constexpr float kTanhCubic = 0.044715f, kTanhScale = 0.7978845608028654f;  // sqrt(2 / pi)
constexpr float kInverseSqrt2 = 0.7071067811865476f, kInverseSqrt2Pi = 0.3989422804014327f;

WEFT_GPU inline float gelu(float x, bool exact) {
  if (exact) return 0.5f * x * (1.0f + erff(x * kInverseSqrt2));
  return 0.5f * x * (1.0f + tanhf(kTanhScale * (x + kTanhCubic * x * x * x)));
}
WEFT_GPU inline float gelu_slope(float x, bool exact) {
  if (exact) return 0.5f * (1.0f + erff(x * kInverseSqrt2)) + x * expf(-0.5f * x * x) * kInverseSqrt2Pi;
  const float s =
      sigmoid(2.0f * kTanhScale * (x + kTanhCubic * x * x * x));  // (1 + tanh) / 2: 1 - tanh^2 = 4 s (1 - s)
  const float rest = sigmoid(-2.0f * kTanhScale * (x + kTanhCubic * x * x * x));
  return s + 2.0f * x * s * rest * kTanhScale * (1.0f + 3.0f * kTanhCubic * x * x);
}
template <class T>
struct GeluOf {
  Rows<const T> x;
  bool exact;
  WEFT_GPU float operator()(int64_t i, int64_t j) const { return gelu(load(x[i] + j), exact); }
};
template <class T>
struct GeluSlope {
  Rows<const T> x, dy;
  bool exact;
  WEFT_GPU float operator()(int64_t i, int64_t j) const { return load(dy[i] + j) * gelu_slope(load(x[i] + j), exact); }
};

// What a dropped element is multiplied by, or a kept one.
struct Kept {
  uint64_t key;
  double dropped;  // p 2^32: random bits below it drop
  float scale;     // 1 / (1 - p)
  WEFT_GPU float operator()(uint64_t element) const {
    return double(random_bits(key, element)) < dropped ? 0.0f : scale;
  }
};
inline Kept kept(const DropoutSpec& d) { return {d.key, d.p * 0x1p32, float(1 / (1 - d.p))}; }

template <class T>
struct DroppedOut {
  Rows<const T> x;
  const int64_t* tokens;
  int64_t first, total;
  Kept kept;
  WEFT_GPU float operator()(int64_t i, int64_t j) const {
    return load(x[i] + j) * kept(uint64_t(tokens[i] * total + first + j));
  }
};

// Rows of a table by ids, or zero.
template <class T>
struct Embedded {
  const int32_t* ids;
  Rows<const T> table, before;  // before: what is added to, or none
  int64_t first, count;
  WEFT_GPU float operator()(int64_t i, int64_t j) const {
    const int64_t row = ids[i] - first;
    const float x = row >= 0 && row < count ? load(table[row] + j) : 0.0f;
    return before ? x + load(before[i] + j) : x;
  }
};
// A block for each token: the first of those with the same id adds what all of them have, in their order.
template <class T>
struct EmbedSlopes {
  const int32_t* ids;
  int64_t num_ids;
  Rows<const T> dy;
  Rows<float> dtable;
  int64_t first, count;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t me = block.index(), id = ids[me], row = id - first;
    if (row < 0 || row >= count) return;
    const int earlier = block.fold(me, 0, Larger(), [&](int64_t i) { return ids[i] == id ? 1 : 0; });
    if (earlier != 0) return;
    for (int64_t i = me; i < num_ids; ++i)
      if (ids[i] == id) block.each(dy.cols, [&](int64_t j) { dtable[row][j] += load(dy[i] + j); });
  }
};

// A block for each token, of all its heads.
template <class T>
struct Rotated {
  Rows<T> x;
  const int32_t* positions;
  Rows<const float> table;
  bool inverse;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t i = block.index(), half = table.cols / 2;
    const float* turn = table[positions[i]];
    block.each(x.cols / 2, [&](int64_t k) {
      T* pair = x[i] + k / half * table.cols + k % half;
      const float c = turn[k % half], s = inverse ? -turn[half + k % half] : turn[half + k % half];
      const float a = load(pair), b = load(pair + half);
      store(pair, a * c - b * s);
      store(pair + half, b * c + a * s);
    });
  }
};

}  // namespace weft::gpu
