// What the losses over classes share, whether a rank has all classes of a row or a part of them.
#if defined(WEFT_OPS_CPU_LOSSES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_OPS_CPU_LOSSES_INL_H_
#undef WEFT_OPS_CPU_LOSSES_INL_H_
#else
#define WEFT_OPS_CPU_LOSSES_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "weft/ops/cpu/math-inl.h"
#include "weft/ops/cpu/rows.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

// The largest of n numbers; -infinity where n is 0.
HWY_INLINE float largest(const float* x, int64_t n) {
  const Lanes d;
  auto m0 = hn::Set(d, -INFINITY), m1 = m0, m2 = m0, m3 = m0;
  int64_t j = 0;
  for (; j + 4 * kLanes <= n; j += 4 * kLanes) {
    m0 = hn::Max(m0, hn::LoadU(d, x + j));
    m1 = hn::Max(m1, hn::LoadU(d, x + j + kLanes));
    m2 = hn::Max(m2, hn::LoadU(d, x + j + 2 * kLanes));
    m3 = hn::Max(m3, hn::LoadU(d, x + j + 3 * kLanes));
  }
  float most = hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
  for (; j < n; ++j) most = std::max(most, x[j]);
  return most;
}

// The rows of an op that joins the ranks' parts of a loss. Where a row's weight is 0, its loss and its gradient become
// 0; for the others, calls f(row, weight, target), where `target` is the column of the row's target here, or -1 where
// another rank has it. T is the type of op.dlogits, which may be none.
template <class T, class Op, class F>
HWY_INLINE void for_each_weighted_row(const Op& op, Range rows, const F& f) {
  const int64_t n = op.logits.cols();
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const float weight = op.weights.template as<float>()[i];
    if (weight == 0) {
      op.nll.template as<float>()[i] = 0;
      if (op.dlogits) std::fill_n(rows_of<T>(op.dlogits)[i], n, T(0.0f));
      continue;
    }
    const int64_t target = op.targets.template as<int32_t>()[i] - op.first;
    f(i, weight, target >= 0 && target < n ? target : -1);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#endif
