// Kernels of mixtures of experts: routers a thread a token, rows, and products of the rows of each expert.
#pragma once
#include <cmath>

#include "weft/ops/cuda/elements.h"
#include "weft/ops/cuda/pointwise.h"

namespace weft::gpu {

// The scores of a token, computed as they are asked for.
struct TokenScores {
  const float* logits;
  int64_t n;
  bool by_sigmoid;
  float lse = 0, sum = 1;
  WEFT_GPU TokenScores(const float* of, int64_t experts, bool is_sigmoid)
      : logits(of), n(experts), by_sigmoid(is_sigmoid) {
    float most = logits[0], total = 0;
    for (int64_t e = 1; e < n; ++e) most = logits[e] > most ? logits[e] : most;
    for (int64_t e = 0; e < n; ++e) total += expf(logits[e] - most);
    lse = most + logf(total);
    if (!by_sigmoid) return;
    sum = float(kLeastSumOfScores);
    for (int64_t e = 0; e < n; ++e) sum += s(e);
  }
  WEFT_GPU float share(int64_t e) const { return expf(logits[e] - lse); }
  WEFT_GPU float s(int64_t e) const { return by_sigmoid ? sigmoid(logits[e]) : share(e); }
  WEFT_GPU float p(int64_t e) const { return s(e) / sum; }
};

struct RoutedTokens {
  Rows<const float> logits;
  const float* bias;
  int32_t* ids;
  Rows<float> weights;
  int64_t tokens, k;
  Routing routing;

  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    block.each(kThreads, [&](int64_t t) {
      if (block.index() * kThreads + t < tokens) route(block.index() * kThreads + t);
    });
  }

 private:
  WEFT_GPU float by(const TokenScores& r, int64_t e) const {
    if (!routing.sigmoid && bias == nullptr && !routing.by_two) return r.logits[e];
    return r.s(e) + (bias != nullptr ? bias[e] : 0.0f);
  }
  WEFT_GPU float best_of_group(const TokenScores& r, int64_t g) const {
    const int64_t of_group = r.n / routing.groups;
    float best = -INFINITY, second = -INFINITY;
    for (int64_t e = g * of_group; e < (g + 1) * of_group; ++e) {
      const float x = by(r, e);
      second = x > best ? best : x > second ? x : second;
      best = x > best ? x : best;
    }
    return routing.by_two && of_group > 1 ? best + second : best;
  }
  WEFT_GPU uint64_t open_groups(const TokenScores& r) const {
    uint64_t open = 0;
    for (int64_t i = 0; i < routing.top_groups; ++i) {
      int64_t best = -1;
      float most = 0;
      for (int64_t g = 0; g < routing.groups; ++g) {
        if ((open >> g & 1) != 0) continue;
        const float x = best_of_group(r, g);
        if (best < 0 || x > most) best = g, most = x;
      }
      open |= uint64_t{1} << best;
    }
    return open;
  }
  WEFT_GPU void route(int64_t i) const {
    const TokenScores r(logits[i], logits.cols, routing.sigmoid);
    const uint64_t open = routing.groups > 1 ? open_groups(r) : 1;
    int32_t* const chosen = ids + i * k;
    float total = routing.sigmoid ? float(kLeastSumOfScores) : 0.0f;
    for (int64_t j = 0; j < k; ++j) {
      int64_t best = -1;
      float most = 0;
      for (int64_t e = 0; e < r.n; ++e) {
        bool taken = (open >> (e * routing.groups / r.n) & 1) == 0;
        for (int64_t before = 0; before < j; ++before) taken = taken || chosen[before] == e;
        if (taken) continue;
        const float x = by(r, e);
        if (best < 0 || x > most) best = e, most = x;
      }
      chosen[j] = int32_t(best);
      total += r.s(best);
    }
    const float scale = float(routing.scale) / (routing.normalise ? total : 1.0f);
    for (int64_t j = 0; j < k && weights; ++j) weights[i][j] = scale * r.s(chosen[j]);
  }
};

template <class T>
struct RouterSlopes {
  Rows<const float> logits, dweights, load;
  const float* whole;
  const int32_t* ids;
  Rows<T> dlogits;
  int64_t tokens, k;
  Routing routing;
  Balance balance;

  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    block.each(kThreads, [&](int64_t t) {
      if (block.index() * kThreads + t < tokens) slopes(block.index() * kThreads + t);
    });
  }

 private:
  WEFT_GPU float of_share(int64_t i, int64_t e) const {
    const float pull = float(balance.load_scale) * load[(balance.first + i) / balance.sample_tokens][e];
    return pull + (whole != nullptr ? float(balance.whole_scale) * whole[e] : 0.0f);
  }
  WEFT_GPU void slopes(int64_t i) const {
    const TokenScores r(logits[i], logits.cols, routing.sigmoid);
    const int32_t* chosen = ids + i * k;
    const float least = routing.sigmoid ? float(kLeastSumOfScores) : 0.0f;
    float mean_p = 0, total = least, mean_s = 0;
    for (int64_t e = 0; e < r.n; ++e) mean_p += of_share(i, e) * r.p(e);
    for (int64_t j = 0; j < k; ++j) total += r.s(chosen[j]);
    const auto of_weight = [&](int64_t j) {
      if (!routing.normalise) return dweights[i][j];
      float apart = least * dweights[i][j];  // by differences, so that the only one of a token has none
      for (int64_t other = 0; other < k; ++other) apart += r.s(chosen[other]) * (dweights[i][j] - dweights[i][other]);
      return apart / total / total;
    };
    const auto of_score = [&](int64_t e) {
      float ds = routing.sigmoid ? (of_share(i, e) - mean_p) / r.sum : of_share(i, e);
      for (int64_t j = 0; j < k; ++j)
        if (chosen[j] == e) ds += float(routing.scale) * of_weight(j);
      return ds;
    };
    for (int64_t e = 0; e < r.n; ++e) mean_s += of_score(e) * r.s(e);
    for (int64_t e = 0; e < r.n; ++e) {
      const float s = r.s(e), ds = of_score(e);
      store(dlogits[i] + e,
            s * (routing.sigmoid ? ds * (1 - s) : ds - mean_s) + float(2 * balance.z_scale) * r.lse * r.share(e));
    }
  }
};

// A block for each sum.
struct RouterTotals {
  Rows<const float> logits, load;
  const int32_t* ids;
  double* sums;
  int64_t tokens, k, first, sample_tokens;
  bool by_sigmoid;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t at = block.index(), n = logits.cols, counts = RouterSums::kScalars;
    const double sum = block.fold(tokens, 0.0, AddUp(), [&](int64_t i) {
      if (at >= counts && at < counts + n) {
        double count = 0;
        for (int64_t j = 0; j < k; ++j) count += ids[i * k + j] == at - counts ? 1 : 0;
        return count;
      }
      const TokenScores r(logits[i], n, by_sigmoid);
      if (at >= counts) return double(r.p(at - counts - n));
      if (at == 1) return double(r.lse) * double(r.lse);
      double total = 0;
      for (int64_t e = 0; e < n; ++e) {
        const auto p = double(r.p(e));
        total += at == 0 ? double(load[(first + i) / sample_tokens][e]) * p : p > 0 ? -p * log(p) : 0.0;
      }
      return total;
    });
    block.each(1, [&](int64_t) { sums[at] += sum; });
  }
};

// A block for each sample.
struct SampleLoad {
  const int32_t* ids;
  Rows<float> load;
  int64_t tokens, k, sample_tokens;
  float scale;
  bool accumulate;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t q = block.index(), begin = q * sample_tokens * k;
    const int64_t end = (q + 1) * sample_tokens < tokens ? begin + sample_tokens * k : tokens * k;
    block.fold_rows(
        load.cols, end - begin, 0, AddUp(), [&](int64_t e, int64_t i) { return ids[begin + i] == e ? 1 : 0; },
        [&](int64_t e, int count) { load[q][e] = (accumulate ? load[q][e] : 0.0f) + scale * float(count); });
  }
};

// Pairs in chunks, so that many blocks group them; counts[chunk][expert], then where the chunk's rows of the expert
// begin among all of the expert's.
inline constexpr int64_t kPairsOfChunk = 4 * kThreads;
struct PairChunks {
  const int32_t* ids;
  int64_t pairs, experts, chunks;
  int32_t* counts;
  // f(pair) for those of a chunk that are an expert's, in their order.
  template <class F>
  WEFT_GPU void of_expert(int64_t chunk, int64_t e, const F& f) const {
    const int64_t begin = chunk * kPairsOfChunk, end = begin + kPairsOfChunk < pairs ? begin + kPairsOfChunk : pairs;
    for (int64_t i = begin; i < end; ++i)
      if (ids[i] == e) f(i);
  }
};
struct CountedPairs {
  PairChunks of;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    block.each(of.experts, [&](int64_t e) {
      int32_t count = 0;
      of.of_expert(block.index(), e, [&](int64_t) { ++count; });
      of.counts[block.index() * of.experts + e] = count;
    });
  }
};
// One block.
struct PairOffsets {
  PairChunks of;
  int32_t* offsets;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    block.each(of.experts, [&](int64_t e) {
      int32_t before = 0;
      for (int64_t c = 0; c < of.chunks; ++c) {
        const int32_t count = of.counts[c * of.experts + e];
        of.counts[c * of.experts + e] = before;
        before += count;
      }
      offsets[e + 1] = before;
    });
    block.each(1, [&](int64_t) {
      offsets[0] = 0;
      for (int64_t e = 0; e < of.experts; ++e) offsets[e + 1] += offsets[e];
    });
  }
};
struct GroupedPairs {
  PairChunks of;
  const int32_t* offsets;
  int32_t *order, *places;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    block.each(of.experts, [&](int64_t e) {
      int32_t row = offsets[e] + of.counts[block.index() * of.experts + e];
      of.of_expert(block.index(), e, [&](int64_t i) {
        order[row] = int32_t(i);
        places[i] = row++;
      });
    });
  }
};

template <class T>
struct GatheredRows {
  Rows<const T> x;
  const int32_t* order;
  int64_t per;
  template <int N>
  WEFT_GPU Pack<N> at(int64_t i, int64_t j) const {
    return order[i] < 0 ? Pack<N>{} : load_pack<N>(x[order[i] / int32_t(per)] + j);
  }
};
template <class T>
struct SummedRows {
  Rows<const T> x;
  const int32_t* places;
  int64_t k;
  template <int N>
  WEFT_GPU Pack<N> at(int64_t i, int64_t j) const {
    Pack<N> sum = {};
    for (int64_t p = 0; p < k; ++p)
      if (const int32_t row = places[i * k + p]; row >= 0) sum = each_of(AddUp(), sum, load_pack<N>(x[row] + j));
    return sum;
  }
};

WEFT_GPU inline float row_scale(float scale, bool by_sigmoid) { return by_sigmoid ? sigmoid(scale) : scale; }
template <class T>
struct ScaledRows {
  Rows<const T> x;
  const float* scale;
  bool by_sigmoid;
  WEFT_GPU float operator()(int64_t i, int64_t j) const { return row_scale(scale[i], by_sigmoid) * load(x[i] + j); }
};
// A block a row.
template <class T>
struct ScaledRowSlopes {
  Rows<const T> x, dy;
  const float* scale;
  Rows<T> dx;
  float* dscale;
  bool by_sigmoid;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t i = block.index();
    const float g = row_scale(scale[i], by_sigmoid);
    const float dot = block.fold(x.cols, 0.0f, AddUp(), [&](int64_t j) { return load(dy[i] + j) * load(x[i] + j); });
    block.map(
        x.cols, [&](int64_t j) { return g * load(dy[i] + j); },
        [&](int64_t j, float slope) { store(dx[i] + j, slope); });
    block.each(1, [&](int64_t) { dscale[i] = by_sigmoid ? g * (1 - g) * dot : dot; });
  }
};

// An element of out at a time, of whichever group its row is.
template <class T>
struct GroupedProducts {
  Rows<const T> x, w;
  const int32_t* offsets;
  int64_t groups, wide;
  bool turned;
  WEFT_GPU float operator()(int64_t i, int64_t j) const {
    int64_t g = 0;
    while (g < groups && i >= offsets[g + 1]) ++g;
    float sum = 0;
    for (int64_t p = 0; p < x.cols && g < groups; ++p)
      sum += load(x[i] + p) * load(turned ? w[g * wide + p] + j : w[g * wide + j] + p);
    return sum;
  }
};
template <class T>
struct GroupedSlopes {
  Rows<const T> dy, x;
  Rows<const float> before;
  const int32_t* offsets;
  int64_t wide;
  WEFT_GPU float operator()(int64_t i, int64_t j) const {
    const int64_t g = i / wide;
    float sum = 0;
    for (int64_t r = offsets[g]; r < offsets[g + 1]; ++r) sum += load(dy[r] + i % wide) * load(x[r] + j);
    return before ? before[i][j] + sum : sum;
  }
};

}  // namespace weft::gpu
