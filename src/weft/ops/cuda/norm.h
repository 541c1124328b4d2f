// Kernels: normalization, forward and backward. A row is a token's, or one head of it.
#pragma once
#include <algorithm>
#include <cmath>

#include "weft/ops/cuda/elements.h"

namespace weft::gpu {

// Rows that are heads: row i of the kernel is head i % heads of token i / heads.
template <class T>
struct HeadRows {
  Rows<T> x;
  int64_t heads = 1, width = 0;
  WEFT_GPU T* operator[](int64_t i) const { return x[i / heads] + i % heads * width; }
  WEFT_GPU explicit operator bool() const { return bool(x); }
};
// Statistics, one for each row.
struct RowNumbers {
  Rows<float> x;
  int64_t heads = 1;
  WEFT_GPU float& operator[](int64_t i) const { return x[i / heads][i % heads]; }
  WEFT_GPU explicit operator bool() const { return bool(x); }
};

// What a row is scaled by: offset + w.
template <class T>
struct Weights {
  const T* w;
  float offset;
  WEFT_GPU float operator()(int64_t j) const { return offset + load(w + j); }
};
// Sums over all `total` numbers of a row, of which only some are here; or none.
struct RowSums {
  Rows<const float> x;
  float total;
  WEFT_GPU float mean(int64_t i) const { return x[i][0] / total; }
  WEFT_GPU explicit operator bool() const { return bool(x); }
};

// s = x + delta; y = (s - mean) rstd (offset + w) + b. A block a row.
template <class T>
struct NormRow {
  HeadRows<T> x, delta, sum, y;
  Weights<T> w;
  const T* b;
  RowNumbers mean, rstd;
  float eps;
  RowSums squares = {};
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t i = block.index(), n = x.width;
    const T* s = x[i];
    if (delta) {
      block.map(
          n, [&](int64_t j) { return load(x[i] + j) + load(delta[i] + j); },
          [&](int64_t j, float added) { store(sum[i] + j, added); });
      s = sum[i];
    }
    const float m = mean ? block.fold(n, 0.0f, AddUp(), [&](int64_t j) { return load(s + j); }) / float(n) : 0.0f;
    const float here = block.fold(n, 0.0f, AddUp(), [&](int64_t j) {
      const float d = load(s + j) - m;
      return d * d;
    });
    const float r = 1.0f / sqrtf((squares ? squares.mean(i) : here / float(n)) + eps);
    block.each(1, [&](int64_t) {
      if (mean) mean[i] = m;
      rstd[i] = r;
    });
    block.map(
        n, [&](int64_t j) { return (load(s + j) - m) * r * w(j) + (b != nullptr ? load(b + j) : 0.0f); },
        [&](int64_t j, float out) { store(y[i] + j, out); });
  }
};

template <class T>
struct NormRowAgain {
  HeadRows<T> x, y;
  Weights<T> w;
  const T* b;
  RowNumbers mean, rstd;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t i = block.index();
    const float m = mean ? mean[i] : 0.0f, r = rstd[i];
    block.map(
        x.width, [&](int64_t j) { return (load(x[i] + j) - m) * r * w(j) + (b != nullptr ? load(b + j) : 0.0f); },
        [&](int64_t j, float out) { store(y[i] + j, out); });
  }
};

// dx = carry + rstd (g - mean(g) - xhat mean(g xhat)) with g = (offset + w) dy. A block for each chunk of rows, which
// leaves in parts its sums over them of dy xhat and dy, one row of parts each. How many rows a chunk has: so many that
// their parts are few to add.
inline int64_t rows_of_chunk(int64_t rows) { return std::max<int64_t>(32, (rows + 1023) / 1024); }
template <class T>
struct NormRowsBackward {
  HeadRows<T> x, dy, carry, dx;
  Weights<T> w;
  RowNumbers mean, rstd;
  int64_t num_rows, chunk_rows;
  float *dw_parts, *db_parts;  // [chunks, width]; db_parts may be none
  RowSums dots = {};
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t first = block.index() * chunk_rows, n = x.width;
    const int64_t end = first + chunk_rows < num_rows ? first + chunk_rows : num_rows;
    float* dw = dw_parts + block.index() * n;
    float* db = db_parts != nullptr ? db_parts + block.index() * n : nullptr;
    block.each(n, [&](int64_t j) {
      float of_w = 0, of_b = 0;
      WEFT_UNROLL_8
      for (int64_t i = first; i < end; ++i) {
        const float d = load(dy[i] + j);
        of_w += d * (load(x[i] + j) - (mean ? mean[i] : 0.0f)) * rstd[i];
        of_b += d;
      }
      dw[j] = of_w;
      if (db != nullptr) db[j] = of_b;
    });
    for (int64_t i = first; i < end; ++i) row(block, i);
  }
  template <class Block>
  WEFT_GPU void row(const Block& block, int64_t i) const {
    const int64_t n = x.width;
    const float m = mean ? mean[i] : 0.0f, r = rstd[i];
    const auto g = [&](int64_t j) { return w(j) * load(dy[i] + j); };
    const auto xhat = [&](int64_t j) { return (load(x[i] + j) - m) * r; };
    const float g_mean = mean ? block.fold(n, 0.0f, AddUp(), g) / float(n) : 0.0f;
    const float gx_here = block.fold(n, 0.0f, AddUp(), [&](int64_t j) { return g(j) * xhat(j); }) / float(n);
    const float gx_mean = dots ? r * dots.mean(i) : gx_here;
    block.map(
        n, [&](int64_t j) { return (carry ? load(carry[i] + j) : 0.0f) + r * (g(j) - g_mean - xhat(j) * gx_mean); },
        [&](int64_t j, float slope) { store(dx[i] + j, slope); });
  }
};

// out[i] = sum of w[j] x[i][j] y[i][j]. A block a row.
template <class T>
struct RowDotsOf {
  Rows<const T> x, y;
  const T* w;
  Rows<float> out;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t i = block.index();
    const float sum = block.fold(x.cols, 0.0f, AddUp(), [&](int64_t j) {
      const float product = load(x[i] + j) * load(y[i] + j);
      return w != nullptr ? load(w + j) * product : product;
    });
    block.each(1, [&](int64_t) { out[i][0] = sum; });
  }
};

// out[j] (+)= the sum of parts[., j]. A block for each run of columns; each of its warps adds every kWarps-th part,
// then their sums are added in order.
struct ColumnSums {
  const float* parts;
  int64_t num_parts, cols;
  float* out;
  bool accumulate;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t first = block.index() * kLanes, n = cols - first < kLanes ? cols - first : kLanes;
    float* const sums = block.numbers();
    block.each(kThreads, [&](int64_t t) {
      if (t % kLanes >= n) return;
      float sum = 0;
      WEFT_UNROLL_8
      for (int64_t p = t / kLanes; p < num_parts; p += kWarps) sum += parts[p * cols + first + t % kLanes];
      sums[t] = sum;
    });
    block.each(n, [&](int64_t k) {
      float sum = 0;
      for (int w = 0; w < kWarps; ++w) sum += sums[w * kLanes + k];
      out[first + k] = accumulate ? out[first + k] + sum : sum;
    });
  }
};
// parts[chunk][j]: the sum of dy[., j] over a chunk of rows.
template <class T>
struct ChunkSums {
  Rows<const T> dy, x;
  int64_t num_rows, chunk_rows;
  float* parts;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t first = block.index() * chunk_rows;
    const int64_t end = first + chunk_rows < num_rows ? first + chunk_rows : num_rows;
    block.each(dy.cols, [&](int64_t j) {
      float sum = 0;
      WEFT_UNROLL_8
      for (int64_t i = first; i < end; ++i) sum += x ? load(dy[i] + j) * load(x[i] + j) : load(dy[i] + j);
      parts[block.index() * dy.cols + j] = sum;
    });
  }
};

}  // namespace weft::gpu
