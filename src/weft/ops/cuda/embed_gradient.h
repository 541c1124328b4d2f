// Kernels: the gradient of an embedding. Tokens are ordered by their ids, so that all of a row of the table stand
// together, each row's in their own order.
#pragma once
#include "weft/ops/cuda/elements.h"

namespace weft::gpu {

// order[place] = token. A block for a run of kThreads tokens, each of which counts those before it: n^2 comparisons,
// which take less than n rows of a table do.
struct TokensById {
  const int32_t* ids;
  int64_t num_ids;
  int32_t* order;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t begin = block.index() * kThreads, here = num_ids - begin < kThreads ? num_ids - begin : kThreads;
    block.each(here, [&](int64_t t) {
      const int64_t token = begin + t;
      const int32_t id = ids[token];
      int place = 0;
      WEFT_UNROLL_8
      for (int64_t i = 0; i < begin; ++i) place += ids[i] <= id ? 1 : 0;
      for (int64_t i = begin; i < begin + here; ++i) place += ids[i] < id || (ids[i] == id && i < token) ? 1 : 0;
      WEFT_UNROLL_8
      for (int64_t i = begin + here; i < num_ids; ++i) place += ids[i] < id ? 1 : 0;
      order[place] = int32_t(token);
    });
  }
};

// A block for each place: that of an id's first token adds what all tokens of the id have, in their order.
template <class T, int N>
struct EmbedSlopes {
  static constexpr int kTokens = 8;  // that are read at once
  const int32_t *ids, *order;
  int64_t num_ids;
  Rows<const T> dy;
  Rows<float> dtable;
  int64_t first, count;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t begin = block.index();
    const int32_t id = ids[order[begin]];
    const int64_t row = id - first;
    if (row < 0 || row >= count) return;
    const auto has_id = [&](int64_t place) { return place < num_ids && ids[order[place]] == id; };
    if (begin > 0 && has_id(begin - 1)) return;
    block.each(dy.cols / N, [&](int64_t p) {
      float* const to = dtable[row] + p * N;
      Pack<N> sum = load_pack<N>(to);
      for (int64_t place = begin; has_id(place); place += kTokens) {
        Pack<N> some[kTokens];
        WEFT_UNROLL
        for (int u = 0; u < kTokens; ++u)
          if (has_id(place + u)) some[u] = load_pack<N>(dy[order[place + u]] + p * N);
        WEFT_UNROLL
        for (int u = 0; u < kTokens; ++u)
          if (has_id(place + u)) sum = each_of(AddUp(), sum, some[u]);
      }
      store_pack(to, sum);
    });
  }
};

}  // namespace weft::gpu
