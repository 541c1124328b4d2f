// Kernels: normalization, forward and backward. A row is a token's, or one head of it; a warp has it, in packs of N.
#pragma once
#include <algorithm>
#include <cmath>

#include "weft/ops/cuda/elements.h"

namespace weft::gpu {

// Rows that are heads: row i of the kernel is head i % heads of token i / heads. There are less than 2^32.
template <class T>
struct HeadRows {
  Rows<T> x;
  int64_t heads = 1, width = 0;
  WEFT_GPU T* operator[](int64_t i) const {
    if (heads == 1) return x[i];
    const auto row = unsigned(i), count = unsigned(heads);
    return x[row / count] + int64_t(row % count) * width;
  }
  WEFT_GPU explicit operator bool() const { return bool(x); }
};
// Statistics, one for each row.
struct RowNumbers {
  Rows<float> x;
  int64_t heads = 1;
  WEFT_GPU float& operator[](int64_t i) const {
    if (heads == 1) return x[i][0];
    return x[unsigned(i) / unsigned(heads)][unsigned(i) % unsigned(heads)];
  }
  WEFT_GPU explicit operator bool() const { return bool(x); }
};

// What a row is scaled by: offset + w.
template <class T>
struct Weights {
  const T* w;
  float offset;
  template <int N>
  WEFT_GPU Pack<N> at(int64_t j) const {
    return each_of([&](float u) { return offset + u; }, load_pack<N>(w + j));
  }
};
// Sums over all `total` numbers of a row, of which only some are here; or none.
struct RowSums {
  Rows<const float> x;
  float total;
  WEFT_GPU float mean(int64_t i) const { return x[i][0] / total; }
  WEFT_GPU explicit operator bool() const { return bool(x); }
};

// (s - mean) rstd (offset + w) + b of columns [j, j + N).
template <int N, class T>
WEFT_GPU Pack<N> normed(const Pack<N>& s, float mean, float rstd, const Weights<T>& w, const T* b, int64_t j) {
  const auto scaled = [&](float u, float v) { return (u - mean) * rstd * v; };
  const Pack<N> y = each_of(scaled, s, w.template at<N>(j));
  return b != nullptr ? each_of(AddUp(), y, load_pack<N>(b + j)) : y;
}

// s = x + delta; y = (s - mean) rstd (offset + w) + b. A block has a row for each of its warps.
template <class T, int N>
struct NormRows {
  HeadRows<T> x, delta, sum, y;
  Weights<T> w;
  const T* b;
  RowNumbers mean, rstd;
  float eps;
  int64_t num_rows;
  RowSums squares = {};
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t first = block.index() * kWarps, count = num_rows - first < kWarps ? num_rows - first : kWarps;
    const int64_t packs = x.width / N;
    float *const means = block.numbers(), *const rstds = means + kWarps;
    if (delta)
      block.template map_rows<kHeld>(
          count, packs,
          [&](int64_t r, int64_t p) {
            return each_of(AddUp(), load_pack<N>(x[first + r] + p * N), load_pack<N>(delta[first + r] + p * N));
          },
          [&](int64_t r, int64_t p, const Pack<N>& added) { store_pack(sum[first + r] + p * N, added); });
    const HeadRows<T>& s = delta ? sum : x;
    const auto part = [&](int64_t r, int64_t p) { return load_pack<N>(s[first + r] + p * N); };
    if (mean)
      block.fold_rows(
          count, packs, 0.0f, AddUp(), [&](int64_t r, int64_t p) { return sum_of(part(r, p)); },
          [&](int64_t r, float total) { means[r] = total / float(x.width); });
    block.fold_rows(
        count, packs, 0.0f, AddUp(),
        [&](int64_t r, int64_t p) {
          const float m = mean ? means[r] : 0.0f;
          return sum_of(each_of([&](float u) { return (u - m) * (u - m); }, part(r, p)));
        },
        [&](int64_t r, float total) {
          rstds[r] = 1.0f / sqrtf((squares ? squares.mean(first + r) : total / float(x.width)) + eps);
          if (mean) mean[first + r] = means[r];
          rstd[first + r] = rstds[r];
        });
    block.template map_rows<kHeld>(
        count, packs,
        [&](int64_t r, int64_t p) { return normed(part(r, p), mean ? means[r] : 0.0f, rstds[r], w, b, p * N); },
        [&](int64_t r, int64_t p, const Pack<N>& out) { store_pack(y[first + r] + p * N, out); });
  }
  static constexpr int kHeld = 4;
};

template <class T, int N>
struct NormRowsAgain {
  HeadRows<T> x, y;
  Weights<T> w;
  const T* b;
  RowNumbers mean, rstd;
  int64_t num_rows;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t first = block.index() * kWarps, count = num_rows - first < kWarps ? num_rows - first : kWarps;
    block.template map_rows<4>(
        count, x.width / N,
        [&](int64_t r, int64_t p) {
          const int64_t i = first + r;
          return normed(load_pack<N>(x[i] + p * N), mean ? mean[i] : 0.0f, rstd[i], w, b, p * N);
        },
        [&](int64_t r, int64_t p, const Pack<N>& out) { store_pack(y[first + r] + p * N, out); });
  }
};

// How many rows a chunk has, of which a block makes sums by columns: so many that the sums are few to add.
inline int64_t rows_of_chunk(int64_t rows) { return std::max<int64_t>(32, (rows + 1023) / 1024); }
// Who makes the sums of a chunk by columns: a thread for each pack of columns, and where these are fewer than threads,
// several, which share the rows. Each leaves a row of parts; then the first row of parts has their sum.
struct ColumnThreads {
  int packs, sharers;
  WEFT_BOTH static ColumnThreads of(int64_t packs) {
    return {int(packs), packs > 0 && packs < kThreads ? int(kThreads / packs) : 1};
  }
  // As many rows of parts as a chunk of so many columns has, whatever packs they come in.
  static int64_t most_sharers(int64_t cols) { return of(cols % kPack == 0 ? cols / kPack : cols).sharers; }
  // f(pack, sharer) for all.
  template <class Block, class F>
  WEFT_GPU void each(const Block& block, const F& f) const {
    block.each(packs * sharers, [&](int64_t t) { f(int(t) % packs, int(t) / packs); });
  }
  template <class Block>
  WEFT_GPU void join(const Block& block, float* parts, int64_t cols) const {
    if (sharers == 1) return;
    block.each(cols, [&](int64_t j) {
      for (int s = 1; s < sharers; ++s) parts[j] += parts[s * cols + j];
    });
  }
};

// dx = carry + rstd (g - mean(g) - xhat mean(g xhat)) with g = (offset + w) dy. A block for each chunk of rows, which
// leaves its sums over them of dy xhat and dy in parts.
template <class T, int N>
struct NormRowsBackward {
  HeadRows<T> x, dy, carry, dx;
  Weights<T> w;
  RowNumbers mean, rstd;
  int64_t num_rows, chunk_rows;
  int64_t parts_apart;         // from chunk to chunk
  float *dw_parts, *db_parts;  // db_parts may be none
  RowSums dots = {};
  static constexpr int kGroup = 2 * kWarps;  // rows whose means are known before their dx is made

  struct Sums {
    float g, gx;
  };
  struct JoinSums {
    WEFT_GPU Sums operator()(Sums a, Sums b) const { return {a.g + b.g, a.gx + b.gx}; }
  };
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t first = block.index() * chunk_rows;
    const int64_t end = first + chunk_rows < num_rows ? first + chunk_rows : num_rows;
    const ColumnThreads threads = ColumnThreads::of(x.width / N);
    float* const dw = dw_parts + block.index() * parts_apart;
    float* const db = db_parts != nullptr ? db_parts + block.index() * parts_apart : nullptr;
    for (int64_t group = first; group < end; group += kGroup) {
      const int64_t count = end - group < kGroup ? end - group : kGroup;
      make_means(block, group, count);
      const Sums* const means = reinterpret_cast<const Sums*>(block.numbers());
      threads.each(block, [&](int pack, int sharer) {
        const int64_t at = sharer * x.width + pack * N;
        columns({pack * N, sharer, threads.sharers, dw + at, db != nullptr ? db + at : nullptr}, group, count,
                group == first, means);
      });
    }
    threads.join(block, dw, x.width);
    if (db != nullptr) threads.join(block, db, x.width);
  }

 private:
  template <class Block>
  WEFT_GPU void make_means(const Block& block, int64_t group, int64_t count) const {
    Sums* const means = reinterpret_cast<Sums*>(block.numbers());
    block.fold_rows(
        count, x.width / N, Sums{0, 0}, JoinSums(),
        [&](int64_t r, int64_t p) {
          const int64_t i = group + r, j = p * N;
          const float m = mean ? mean[i] : 0.0f, scale = rstd[i];
          const Pack<N> g =
              each_of([](float u, float v) { return u * v; }, w.template at<N>(j), load_pack<N>(dy[i] + j));
          const auto times_xhat = [&](float u, float v) { return u * ((v - m) * scale); };
          return Sums{sum_of(g), sum_of(each_of(times_xhat, g, load_pack<N>(x[i] + j)))};
        },
        [&](int64_t r, Sums s) {
          const float n = float(x.width);
          means[r] = {mean ? s.g / n : 0.0f, dots ? rstd[group + r] * dots.mean(group + r) : s.gx / n};
        });
  }
  struct Columns {
    int64_t first;
    int row, apart;  // first row of a group, from row to row
    float *dw, *db;  // parts
  };
  WEFT_GPU void columns(const Columns& c, int64_t group, int64_t count, bool is_first, const Sums* means) const {
    Pack<N> of_w = {}, of_b = {};
    if (!is_first) {
      of_w = load_pack<N>(c.dw);
      if (c.db != nullptr) of_b = load_pack<N>(c.db);
    }
    const Pack<N> ws = w.template at<N>(c.first);
    WEFT_UNROLL_4
    for (int64_t r = c.row; r < count; r += c.apart) {
      const int64_t i = group + r;
      const Pack<N> slopes = load_pack<N>(dy[i] + c.first), xs = load_pack<N>(x[i] + c.first);
      Pack<N> out = carry ? load_pack<N>(carry[i] + c.first) : Pack<N>{};
      const float m = mean ? mean[i] : 0.0f, scale = rstd[i], g_mean = means[r].g, gx_mean = means[r].gx;
      WEFT_UNROLL
      for (int u = 0; u < N; ++u) {
        const float xhat = (xs.v[u] - m) * scale;
        of_w.v[u] += slopes.v[u] * xhat;
        of_b.v[u] += slopes.v[u];
        out.v[u] += scale * (ws.v[u] * slopes.v[u] - g_mean - xhat * gx_mean);
      }
      store_pack(dx[i] + c.first, out);
    }
    store_pack(c.dw, of_w);
    if (c.db != nullptr) store_pack(c.db, of_b);
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

// out[j] (+)= the sum of parts[., j], which are `apart` from each other. A block for each run of columns; each of its
// warps adds every kWarps-th part, then their sums are added in order.
struct ColumnSums {
  const float* parts;
  int64_t num_parts, cols, apart;
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
      for (int64_t p = t / kLanes; p < num_parts; p += kWarps) sum += parts[p * apart + first + t % kLanes];
      sums[t] = sum;
    });
    block.each(n, [&](int64_t k) {
      float sum = 0;
      for (int w = 0; w < kWarps; ++w) sum += sums[w * kLanes + k];
      out[first + k] = accumulate ? out[first + k] + sum : sum;
    });
  }
};
// The sums of dy[., j], or of dy x, over each chunk of rows.
template <class T, int N>
struct ChunkSums {
  Rows<const T> dy, x;
  int64_t num_rows, chunk_rows, parts_apart;
  float* parts;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t first = block.index() * chunk_rows;
    const int64_t end = first + chunk_rows < num_rows ? first + chunk_rows : num_rows;
    const ColumnThreads threads = ColumnThreads::of(dy.cols / N);
    float* const here = parts + block.index() * parts_apart;
    threads.each(block, [&](int pack, int sharer) {
      const int64_t j = pack * N;
      Pack<N> sum = {};
      WEFT_UNROLL_4
      for (int64_t i = first + sharer; i < end; i += threads.sharers) {
        const Pack<N> slopes = load_pack<N>(dy[i] + j);
        const auto times = [](float u, float v) { return u * v; };
        sum = each_of(AddUp(), sum, x ? each_of(times, slopes, load_pack<N>(x[i] + j)) : slopes);
      }
      store_pack(here + sharer * dy.cols + j, sum);
    });
    threads.join(block, here, dy.cols);
  }
};

}  // namespace weft::gpu
