// Kernels: the loss of a student beside the largest logits of its teacher, over the classes here. A block a token.
#pragma once
#include "weft/ops/cuda/distill.h"

namespace weft::gpu {

// What the parts of a token come to. of_rest: what q is multiplied by for a class beside the teacher's k.
struct JoinedTop {
  float most, lse, at_target, log_soft, divergence, of_rest;
};

// A teacher of which the largest logits of the tokens are known.
struct Top {
  Rows<const int32_t> ids;  // ascending
  Rows<const float> logits;
  const float* lse;
  int64_t first;  // of the classes here
  // Where class j of those here stands among the teacher's of token i, or -1.
  WEFT_GPU int64_t place_of(int64_t i, int64_t j) const {
    const int32_t* const all = ids[i];
    int64_t low = 0, high = ids.cols;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (all[middle] < first + j)
        low = middle + 1;
      else
        high = middle;
    }
    return low < ids.cols && all[low] == first + j ? low : -1;
  }
  WEFT_GPU float log_probability(int64_t i, int64_t place, float by) const { return logits[i][place] * by - lse[i]; }

  // As WholeTeacher's.
  WEFT_GPU JoinedTop join(const Rows<const float>& parts, int64_t begin, int64_t end, int64_t step,
                          const Soft& loss) const {
    JoinedTop all{-INFINITY, 0, 0, 0, 0, 1};
    for (int64_t r = begin; r < end; r += step) all.most = fmaxf(all.most, parts[r][0]);
    float sum = 0, soft = 0, rest = 0, mass = 0, apart = 0;
    for (int64_t r = begin; r < end; r += step) {
      const float by = parts[r][0] - all.most, of_soft = expf(by * loss.by);
      sum += parts[r][1] * expf(by);
      all.at_target += parts[r][2];
      soft += parts[r][3] * of_soft;
      rest += parts[r][4] * of_soft;
      mass += parts[r][5];
      apart += parts[r][6] - parts[r][5] * by * loss.by;
    }
    all.lse = all.most + logf(sum);
    all.log_soft = logf(soft);
    all.divergence = apart + mass * all.log_soft;
    if (rest > 0 && mass < 1) {
      const float t = 1 - mass;
      all.divergence += t * (logf(t / rest) + all.log_soft);
      all.of_rest = 1 - t * (soft / rest);
    }
    return all;
  }
  WEFT_GPU float pull(const JoinedTop& all, int64_t i, int64_t j, float log_q, const Soft& loss) const {
    const float q = expf(log_q);
    const int64_t place = place_of(i, j);
    return place >= 0 ? q - expf(log_probability(i, place, loss.by)) : q * all.of_rest;
  }
};

struct DistillTopPartRow {
  Rows<const float> logits;
  Top top;
  const int32_t* targets;
  Rows<float> parts;
  Soft loss;
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    const int64_t i = block.index(), at = targets[i] - top.first, n = logits.cols;
    const float* x = logits[i];
    const float most = block.fold(n, -INFINITY, Larger(), [&](int64_t j) { return x[j]; });
    const Two sums = block.fold(n, Two{0, 0}, SumOfBoth(), [&](int64_t j) {
      return Two{expf(x[j] - most), expf((x[j] - most) * loss.by)};
    });
    const float rest = block.fold(
        n, 0.0f, AddUp(), [&](int64_t j) { return top.place_of(i, j) < 0 ? expf((x[j] - most) * loss.by) : 0.0f; });
    const Two taught = block.fold(top.ids.cols, Two{0, 0}, SumOfBoth(), [&](int64_t c) {
      const int64_t j = top.ids[i][c] - top.first;
      if (j < 0 || j >= n) return Two{0, 0};
      const float log_t = top.log_probability(i, c, loss.by), t = expf(log_t);
      return Two{t, t * (log_t - (x[j] - most) * loss.by)};
    });
    block.each(1, [&](int64_t) {
      parts[i][0] = most;
      parts[i][1] = sums.a;
      parts[i][2] = at >= 0 && at < n ? x[at] : 0.0f;
      parts[i][3] = sums.b;
      parts[i][4] = rest;
      parts[i][5] = taught.a;
      parts[i][6] = taught.b;
    });
  }
};

}  // namespace weft::gpu
