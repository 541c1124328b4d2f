// Kernels: cross-entropy over all classes, and over those here of classes that ranks have parts of. A block a token.
#pragma once
#include <cmath>

#include "weft/ops/cuda/elements.h"

namespace weft::gpu {

struct MaxAndSum {
  float most = -INFINITY, sum = 0;  // of exp(x - most)
};
// In one pass over the logits (Milakov & Gimelshein 2018, "Online normalizer calculation for softmax").
struct JoinSoftmax {  // a sum of nothing is 0; NaN is none
  WEFT_GPU MaxAndSum operator()(MaxAndSum a, MaxAndSum b) const {
    if (b.most > a.most) return {b.most, b.sum + (a.sum != 0 ? a.sum * expf(a.most - b.most) : 0.0f)};
    return {a.most, a.sum + (b.sum != 0 ? b.sum * expf(b.most - a.most) : 0.0f)};
  }
};
// In packs of N.
template <int N, class Block>
WEFT_GPU MaxAndSum softmax_of(const Block& block, const float* logits, int64_t n) {
  return block.fold((n + N - 1) / N, MaxAndSum(), JoinSoftmax(), [&](int64_t p) {
    const Pack<N> x = load_some<N>(logits + p * N, n - p * N, -INFINITY);
    MaxAndSum some;
    WEFT_UNROLL
    for (int u = 0; u < N; ++u) some.most = Larger()(some.most, x.v[u]);
    WEFT_UNROLL
    for (int u = 0; u < N; ++u) some.sum += x.v[u] == -INFINITY ? 0.0f : expf(x.v[u] - some.most);
    return some;
  });
}

// What is written once the log-sum-exp is known.
template <class T, int N>
struct Losses {
  Rows<const float> logits;
  const int32_t* targets;
  const float* weights;
  float* nll;
  Rows<T> dlogits;
  float scale;
  int64_t first;  // class of logits[.][0]
  template <class Block>
  WEFT_GPU void write(const Block& block, int64_t i, float lse, float at_target) const {
    const float weight = weights[i];
    const int64_t target = targets[i] - first;
    block.each(1, [&](int64_t) { nll[i] = weight != 0 ? weight * (lse - at_target) : 0.0f; });
    if (!dlogits) return;
    const int64_t n = logits.cols;
    block.template map<2>((n + N - 1) / N,  // dlogits may be logits
                          [&](int64_t p) {
                            const Pack<N> x = load_some<N>(logits[i] + p * N, n - p * N, 0);
                            Pack<N> slopes;
                            WEFT_UNROLL
                            for (int u = 0; u < N; ++u) {
                              const float probability = expf(x.v[u] - lse) - (p * N + u == target ? 1.0f : 0.0f);
                              slopes.v[u] = weight != 0 ? scale * weight * probability : 0.0f;
                            }
                            return slopes;
                          },
                          [&](int64_t p, const Pack<N>& slopes) { store_some(dlogits[i] + p * N, slopes, n - p * N); });
  }
};

template <class T, int N>
struct CrossEntropyRow {
  Losses<T, N> out;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t i = block.index();
    const float* logits = out.logits[i];
    const float at_target = logits[out.targets[i]];
    const MaxAndSum s = softmax_of<N>(block, logits, out.logits.cols);
    out.write(block, i, s.most + logf(s.sum), at_target);
  }
};

template <int N>
struct CrossEntropyPartRow {
  Rows<const float> logits;
  const int32_t* targets;
  Rows<float> parts;
  int64_t first;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t i = block.index(), at = targets[i] - first;
    const MaxAndSum s = softmax_of<N>(block, logits[i], logits.cols);
    block.each(1, [&](int64_t) {
      parts[i][0] = s.most;
      parts[i][1] = s.sum;
      parts[i][2] = at >= 0 && at < logits.cols ? logits[i][at] : 0.0f;
    });
  }
};

template <class T, int N>
struct CrossEntropyJoinRow {
  Losses<T, N> out;
  Rows<const float> parts;
  int64_t num_parts, tokens;  // parts of all ranks, rank by rank
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t i = block.index();
    MaxAndSum all;
    float at_target = 0;
    for (int64_t r = i; r < num_parts; r += tokens) {
      all = JoinSoftmax()(all, {parts[r][0], parts[r][1]});
      at_target += parts[r][2];
    }
    out.write(block, i, all.most + logf(all.sum), at_target);
  }
};

}  // namespace weft::gpu
