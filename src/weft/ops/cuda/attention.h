// Kernels: attention, forward and backward, row by row: the version for every shape, which fast versions are checked
// against.
//   h  query heads here     g  key heads here     e  width of a head     u  of a head's values and results
// Softmax over keys that come in chunks: Milakov & Gimelshein 2018; backward from the log-sum-exp: Dao et al. 2022.
#pragma once
#include "weft/ops/cuda/elements.h"
#include "weft/ops/cuda/pointwise.h"
#include "weft/ops/ops.h"

namespace weft::gpu {

// Sums of one query, or of one key and its value, lie in a block's numbers.
inline constexpr int64_t kMostHeadDim = kNumbers - kThreads, kMostOfKey = kNumbers - 2 * kThreads;

// Which queries attend to which keys, and dropout of the weights.
struct Sight {
  const AttentionSpan* spans;
  int64_t num_spans;
  AttentionHeads heads;
  uint64_t dropout_key;
  double dropped;    // p 2^32
  float kept_scale;  // 1 / (1 - p)

  WEFT_GPU int64_t value_dim() const { return heads.v_dim > 0 ? heads.v_dim : heads.dim; }
  WEFT_GPU const AttentionSpan& span_of_query(int64_t row) const {
    int64_t s = 0;
    while (s + 1 < num_spans && !(row >= spans[s].q_row && row < spans[s].q_row + spans[s].q_count)) ++s;
    return spans[s];
  }
  // The keys of the span that the query at this position attends to: [first, end).
  WEFT_GPU int64_t first_key(const AttentionSpan& s, int64_t position) const {
    const int64_t first = heads.window > 0 ? position - heads.window + 1 - s.k_position : 0;
    return first > 0 ? first : 0;
  }
  WEFT_GPU int64_t end_key(const AttentionSpan& s, int64_t position) const {
    const int64_t end = position + 1 - s.k_position;
    return end < s.k_count ? end : s.k_count;
  }
  // The dropout factor of a key's weight.
  WEFT_GPU float kept(const AttentionSpan& s, int64_t head, int64_t q_position, int64_t k_position) const {
    if (dropped == 0) return 1;
    const uint64_t head_key = rng_key_of(dropout_key, uint64_t(s.sample * heads.total + heads.first + head));
    const uint64_t bits = random_bits(head_key, uint64_t(q_position) << 32 | uint64_t(k_position));
    return double(bits) < dropped ? 0.0f : kept_scale;
  }
};

// A score as the softmax has it, from the product q k, and what its gradient is multiplied by.
WEFT_GPU inline float score_of(const AttentionHeads& heads, float product) {
  const float score = float(heads.scale) * product, cap = float(heads.softcap);
  return cap > 0 ? cap * tanhf(score / cap) : score;
}
WEFT_GPU inline float slope_of(const AttentionHeads& heads, float product) {
  if (heads.softcap == 0) return 1;
  const float t = tanhf(float(heads.scale) * product / float(heads.softcap));
  return 1.0f - t * t;
}

template <class T>
WEFT_GPU float dot(const T* a, const T* b, int64_t n) {
  float sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += load(a + j) * load(b + j);
  return sum;
}

// A block for each query row and head.
template <class T>
struct AttentionRow {
  Rows<const T> q, k, v;
  Rows<T> o;
  Rows<float> lse;
  Sight sight;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const AttentionHeads& heads = sight.heads;
    const int64_t i = block.index() / heads.q, h = block.index() % heads.q, e = heads.dim, u = sight.value_dim();
    const int64_t g = h / (heads.q / heads.kv);
    const AttentionSpan& s = sight.span_of_query(i);
    const int64_t position = s.q_position + i - s.q_row;
    float *weights = block.numbers(), *sum_v = weights + kThreads;
    block.each(u, [&](int64_t j) { sum_v[j] = 0; });
    float most = -INFINITY, total = 0;
    const int64_t end = sight.end_key(s, position);
    for (int64_t first = sight.first_key(s, position); first < end; first += kThreads) {
      const int64_t n = end - first < kThreads ? end - first : kThreads;
      block.each(
          n, [&](int64_t c) { weights[c] = score_of(heads, dot(q[i] + h * e, k[s.k_row + first + c] + g * e, e)); });
      const float before = most, here = block.fold(n, -INFINITY, Larger(), [&](int64_t c) { return weights[c]; });
      most = here > most ? here : most;
      const float fades = before > -INFINITY ? expf(before - most) : 0.0f;
      total = total * fades + block.fold(n, 0.0f, AddUp(), [&](int64_t c) { return expf(weights[c] - most); });
      block.each(n, [&](int64_t c) {
        const int64_t key = first + c;
        weights[c] = expf(weights[c] - most) * sight.kept(s, h, position, s.k_position + key);
      });
      block.each(u, [&](int64_t j) {
        float sum = sum_v[j] * fades;
        for (int64_t c = 0; c < n; ++c) sum += weights[c] * load(v[s.k_row + first + c] + g * u + j);
        sum_v[j] = sum;
      });
    }
    block.each(u, [&](int64_t j) { store(o[i] + h * u + j, sum_v[j] / total); });
    block.each(1, [&](int64_t) { lse[i][h] = most + logf(total); });
  }
};

// What both backward kernels read.
template <class T>
struct AttentionGradient {
  Rows<const T> q, k, v, dout;
  Rows<const float> lse;
  Rows<float> weighted;  // [tq, h]: dout . o
  Sight sight;
  // For one query and key: the weight after dropout, and the gradient of the scaled score.
  struct Pair {
    float weight, ds;
  };
  WEFT_GPU Pair pair(const AttentionSpan& s, int64_t q_row, int64_t head, int64_t k_row) const {
    const int64_t e = sight.heads.dim, u = sight.value_dim(), g = head / (sight.heads.q / sight.heads.kv);
    const float product = dot(q[q_row] + head * e, k[k_row] + g * e, e);
    const float p = expf(score_of(sight.heads, product) - lse[q_row][head]);
    const float kept = sight.kept(s, head, s.q_position + q_row - s.q_row, s.k_position + k_row - s.k_row);
    const float dp = kept * dot(dout[q_row] + head * u, v[k_row] + g * u, u);
    return {p * kept, p * (dp - weighted[q_row][head]) * slope_of(sight.heads, product)};
  }
};

// A thread for each query row and head. In the order of Pair's own products: where there is one key, ds is 0.
template <class T>
struct WeightedOutputs {
  Rows<const T> dout, o;
  Rows<float> weighted;
  int64_t num_rows, heads, dim;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t first = block.index() * kThreads, left = num_rows * heads - first;
    block.each(left < kThreads ? left : kThreads, [&](int64_t k) {
      const int64_t i = (first + k) / heads, h = (first + k) % heads;
      weighted[i][h] = dot(dout[i] + h * dim, o[i] + h * dim, dim);
    });
  }
};

// A block for each query row and head.
template <class T>
struct AttentionRowBackward {
  AttentionGradient<T> of;
  Rows<T> dq;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const AttentionHeads& heads = of.sight.heads;
    const int64_t i = block.index() / heads.q, h = block.index() % heads.q, e = heads.dim;
    const int64_t kv = h / (heads.q / heads.kv) * e;
    const AttentionSpan& s = of.sight.span_of_query(i);
    const int64_t position = s.q_position + i - s.q_row, end = of.sight.end_key(s, position);
    float *ds = block.numbers(), *sum_k = ds + kThreads;
    block.each(e, [&](int64_t j) { sum_k[j] = 0; });
    for (int64_t first = of.sight.first_key(s, position); first < end; first += kThreads) {
      const int64_t n = end - first < kThreads ? end - first : kThreads;
      block.each(n, [&](int64_t c) { ds[c] = of.pair(s, i, h, s.k_row + first + c).ds; });
      block.each(e, [&](int64_t j) {
        for (int64_t c = 0; c < n; ++c) sum_k[j] += ds[c] * load(of.k[s.k_row + first + c] + kv + j);
      });
    }
    block.each(e, [&](int64_t j) { store(dq[i] + h * e + j, float(heads.scale) * sum_k[j]); });
  }
};

// A block for each key row and key head: sums over spans, heads and queries, in that order.
template <class T>
struct AttentionKeyBackward {
  AttentionGradient<T> of;
  Rows<T> dk, dv;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const AttentionHeads& heads = of.sight.heads;
    const int64_t row = block.index() / heads.kv, g = block.index() % heads.kv, e = heads.dim, u = of.sight.value_dim(),
                  group = heads.q / heads.kv;
    float *ds = block.numbers(), *weight = ds + kThreads;
    // Threads keep their elements of both sums: element j of either is always thread j's.
    float* sums = weight + kThreads;
    block.each(e + u, [&](int64_t j) { sums[j] = 0; });
    for (int64_t at = 0; at < of.sight.num_spans; ++at) {
      const AttentionSpan& s = of.sight.spans[at];
      if (row < s.k_row || row >= s.k_row + s.k_count) continue;
      const int64_t position = s.k_position + row - s.k_row;  // seen from there on, while the window reaches
      const int64_t begin = position - s.q_position > 0 ? position - s.q_position : 0;
      const int64_t window_end = heads.window > 0 ? position + heads.window - s.q_position : s.q_count;
      const int64_t end = window_end < s.q_count ? window_end : s.q_count;
      for (int64_t h = g * group; h < (g + 1) * group; ++h) {
        for (int64_t first = begin; first < end; first += kThreads) {
          const int64_t n = end - first < kThreads ? end - first : kThreads;
          block.each(n, [&](int64_t c) {
            const auto pair = of.pair(s, s.q_row + first + c, h, row);
            ds[c] = pair.ds;
            weight[c] = pair.weight;
          });
          block.each(e + u, [&](int64_t j) {
            const bool of_key = j < e;
            const int64_t col = of_key ? h * e + j : h * u + j - e;
            const auto& from = of_key ? of.q : of.dout;
            float sum = sums[j];
            for (int64_t c = 0; c < n; ++c) sum += (of_key ? ds[c] : weight[c]) * load(from[s.q_row + first + c] + col);
            sums[j] = sum;
          });
        }
      }
    }
    block.each(e, [&](int64_t j) { store(dk[row] + g * e + j, float(heads.scale) * sums[j]); });
    block.each(u, [&](int64_t j) { store(dv[row] + g * u + j, sums[e + j]); });
  }
};

}  // namespace weft::gpu
