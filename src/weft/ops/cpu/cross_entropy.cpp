#include "weft/ops/cpu/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "weft/ops/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/ops/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/ops/cpu/losses-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

// e^(x - most) for a row, into `e` where there is room to keep it; returns their sum.
float exps(const float* x, int64_t n, float most, float* e) {
  return sum_of(n, [=](auto t, int64_t j) HWY_ATTR {
    const auto v = exp_of_negative(t, hn::Sub(load(t, x + j), hn::Set(t, most)));
    if (e) store(v, t, e + j);
    return v;
  });
}
// to = factor e; `to` may be `e`.
template <class T>
void scale_exps(const float* e, int64_t n, float factor, T* to) {
  for_each(n, [=](auto t, int64_t j) HWY_ATTR { store(hn::Mul(load(t, e + j), hn::Set(t, factor)), t, to + j); });
}

// Returns the loss. Writes scale (softmax - onehot) over dlogits where it exists. `room` [n] keeps the exponentials
// where dlogits cannot, as it has 16 bits.
template <class T>
float cross_entropy_row(const float* logits, int64_t n, int64_t target, T* dlogits, float scale, float* room) {
  const float most = largest(logits, n), at_target = logits[target];
  float* keep = nullptr;
  if constexpr (std::is_same_v<T, float>)
    keep = dlogits;
  else if (dlogits)
    keep = room;
  const float sum = exps(logits, n, most, keep);
  if (dlogits) {
    scale_exps(keep, n, scale / sum, dlogits);
    dlogits[target] = T(scale * (std::exp(at_target - most) / sum - 1));
  }
  return std::log(sum) + (most - at_target);
}

template <class T>
void cross_entropy_rows(const CrossEntropy& op, Range rows, float* room) {
  const auto logits = rows_of<const float>(op.logits);
  const auto dlogits = rows_of<T>(op.dlogits);
  const float* weights = op.weights.as<float>();
  float* nll = op.nll.as<float>();
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    T* d = dlogits ? dlogits[i] : nullptr;
    if (weights[i] != 0) {
      const float scale = float(op.scale) * weights[i];
      nll[i] = weights[i] * cross_entropy_row(logits[i], logits.cols, op.targets.as<int32_t>()[i], d, scale, room);
    } else {
      nll[i] = 0;
      if (d) std::fill_n(d, logits.cols, T(0.0f));
    }
  }
}
void cross_entropy(const CrossEntropy& op, Range rows, float* room) {
  with_type_of(op.dlogits, [&]<class T>() { cross_entropy_rows<T>(op, rows, room); });
}

void cross_entropy_part(const CrossEntropyPart& op, Range rows) {
  const auto logits = rows_of<const float>(op.logits);
  const auto parts = rows_of<float>(op.parts);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const int64_t at = op.targets.as<int32_t>()[i] - op.first;
    const float most = largest(logits[i], logits.cols);
    parts[i][0] = most;
    parts[i][1] = exps(logits[i], logits.cols, most > -INFINITY ? most : 0, nullptr);
    parts[i][2] = at >= 0 && at < logits.cols ? logits[i][at] : 0;
  }
}

// The largest logit of a token, the sum of e^(logit - largest), and the target's, over all ranks.
struct JoinedParts {
  float most, sum, at_target;
};
JoinedParts join_parts(const Rows<const float>& parts, int64_t token, int64_t tokens) {
  JoinedParts all{-INFINITY, 0, 0};
  for (int64_t r = token; r < parts.rows; r += tokens) all.most = std::max(all.most, parts[r][0]);
  for (int64_t r = token; r < parts.rows; r += tokens) {
    all.sum += parts[r][1] * std::exp(parts[r][0] - all.most);
    all.at_target += parts[r][2];
  }
  return all;
}

template <class T>
void cross_entropy_join_rows(const CrossEntropyJoin& op, Range rows) {
  const auto logits = rows_of<const float>(op.logits), parts = rows_of<const float>(op.parts);
  const auto dlogits = rows_of<T>(op.dlogits);
  for_each_weighted_row<T>(op, rows, [&](int64_t i, float weight, int64_t target) HWY_ATTR {
    const JoinedParts all = join_parts(parts, i, logits.rows);
    const float scale = float(op.scale) * weight;
    op.nll.as<float>()[i] = weight * (std::log(all.sum) + (all.most - all.at_target));
    if (!dlogits) return;
    T* d = dlogits[i];
    const float at_target = target >= 0 ? logits[i][target] : 0;  // dlogits may be logits
    for_each(logits.cols, [&, x = logits[i]](auto t, int64_t j) HWY_ATTR {
      const auto v = exp_of_negative(t, hn::Sub(load(t, x + j), hn::Set(t, all.most)));
      store(hn::Mul(v, hn::Set(t, scale / all.sum)), t, d + j);
    });
    if (target >= 0) d[target] = T(scale * (std::exp(at_target - all.most) / all.sum - 1));
  });
}
void cross_entropy_join(const CrossEntropyJoin& op, Range rows) {
  with_type_of(op.dlogits, [&]<class T>() { cross_entropy_join_rows<T>(op, rows); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
HWY_EXPORT(cross_entropy);
HWY_EXPORT(cross_entropy_part);
HWY_EXPORT(cross_entropy_join);
void cross_entropy(const CrossEntropy& op, Range rows, float* room) {
  HWY_DYNAMIC_DISPATCH(cross_entropy)(op, rows, room);
}
void cross_entropy_part(const CrossEntropyPart& op, Range rows) { HWY_DYNAMIC_DISPATCH(cross_entropy_part)(op, rows); }
void cross_entropy_join(const CrossEntropyJoin& op, Range rows) { HWY_DYNAMIC_DISPATCH(cross_entropy_join)(op, rows); }
}  // namespace weft::cpu
#endif
