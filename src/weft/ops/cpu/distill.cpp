#include "weft/ops/cpu/distill.h"

#include <algorithm>
#include <cmath>

#include "weft/ops/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/ops/cpu/distill.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/ops/cpu/losses-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

// (x - most) / temperature of elements j ..., for exponentials.
struct Exponents {
  const float* x;
  float most, by;  // 1 / temperature
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, int64_t j) const {
    return hn::Mul(hn::Sub(load(d, x + j), hn::Set(d, most)), hn::Set(d, by));
  }
};

float sum_of_exps(const Exponents& e, int64_t n) {
  return sum_of(n, [=](auto t, int64_t j) HWY_ATTR { return exp_of_negative(t, e(t, j)); });
}

// The sum of e^a (a - b).
float sum_of_differences(const Exponents& a, const Exponents& b, int64_t n) {
  return sum_of(n, [=](auto t, int64_t j) HWY_ATTR {
    const auto of = a(t, j);
    return hn::Mul(exp_of_negative(t, of), hn::Sub(of, b(t, j)));
  });
}

void distill_part(const DistillPart& op, Range rows) {
  const auto logits = rows_of<const float>(op.logits), teacher = rows_of<const float>(op.teacher);
  const auto parts = rows_of<float>(op.parts);
  const float by = float(1 / op.loss.temperature);
  const int64_t n = logits.cols;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const int64_t at = op.targets.as<int32_t>()[i] - op.first;
    const float most = largest(logits[i], n), of_teacher = largest(teacher[i], n);
    const Exponents soft{logits[i], most, by}, taught{teacher[i], of_teacher, by};
    parts[i][0] = most;
    parts[i][1] = sum_of_exps({logits[i], most, 1}, n);
    parts[i][2] = at >= 0 && at < n ? logits[i][at] : 0;
    parts[i][3] = sum_of_exps(soft, n);
    parts[i][4] = of_teacher;
    parts[i][5] = sum_of_exps(taught, n);
    parts[i][6] = op.loss.reverse ? sum_of_differences(soft, taught, n) : sum_of_differences(taught, soft, n);
  }
}

// What the ranks' parts of a token come to.
struct Joined {
  float most = -INFINITY, teacher_most = -INFINITY;
  double sum = 0, at_target = 0, soft = 0, teacher = 0, d = 0;
  double divergence(bool reverse) const {
    return reverse ? d / soft - std::log(soft / teacher) : d / teacher + std::log(soft / teacher);
  }
};
Joined join_parts(const Rows<const float>& parts, int64_t token, int64_t tokens, const Distillation& loss) {
  Joined all;
  for (int64_t r = token; r < parts.rows; r += tokens) {
    all.most = std::max(all.most, parts[r][0]);
    all.teacher_most = std::max(all.teacher_most, parts[r][4]);
  }
  for (int64_t r = token; r < parts.rows; r += tokens) {
    const double by = double(parts[r][0]) - all.most, teacher_by = double(parts[r][4]) - all.teacher_most;
    const double soft = std::exp(by / loss.temperature), teacher = std::exp(teacher_by / loss.temperature);
    all.sum += parts[r][1] * std::exp(by);
    all.at_target += parts[r][2];
    all.soft += parts[r][3] * soft;
    all.teacher += parts[r][5] * teacher;
    // Each rank's differences are of exponents beside maxima of its own.
    const double apart = (teacher_by - by) / loss.temperature;
    all.d += loss.reverse ? soft * (parts[r][6] - parts[r][3] * apart) : teacher * (parts[r][6] + parts[r][5] * apart);
  }
  return all;
}

// scale times the slope of a token's loss by its logits; of cross-entropy without what the target takes off.
struct Slopes {
  Exponents hard, soft, taught;
  float of_hard, of_pull, log_soft, log_teacher;
  bool reverse;
  float divergence;
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, int64_t j) const {
    const auto p = hn::Mul(exp_of_negative(d, hard(d, j)), hn::Set(d, of_hard));
    const auto log_q = hn::Sub(soft(d, j), hn::Set(d, log_soft));
    const auto log_t = hn::Sub(taught(d, j), hn::Set(d, log_teacher));
    const auto q = exp_of_negative(d, log_q);
    const auto pull = reverse ? hn::Mul(q, hn::Sub(hn::Sub(log_q, log_t), hn::Set(d, divergence)))
                              : hn::Sub(q, exp_of_negative(d, log_t));
    return hn::MulAdd(pull, hn::Set(d, of_pull), p);
  }
};
Slopes slopes_of(const DistillJoin& op, int64_t i, const Joined& all, float scale) {
  const float *x = rows_of<const float>(op.logits)[i], *y = rows_of<const float>(op.teacher)[i];
  const float by = float(1 / op.loss.temperature);
  return {.hard = {x, all.most, 1},
          .soft = {x, all.most, by},
          .taught = {y, all.teacher_most, by},
          .of_hard = scale * float((1 - op.loss.alpha) / all.sum),
          .of_pull = scale * float(op.loss.alpha * op.loss.temperature),
          .log_soft = float(std::log(all.soft)),
          .log_teacher = float(std::log(all.teacher)),
          .reverse = op.loss.reverse,
          .divergence = float(all.divergence(op.loss.reverse))};
}

template <class T>
void distill_join_rows(const DistillJoin& op, Range rows) {
  const auto parts = rows_of<const float>(op.parts);
  const auto dlogits = rows_of<T>(op.dlogits);
  float* divergence = op.divergence.as<float>();
  std::fill_n(divergence + rows.begin, rows.size(), 0.0f);
  for_each_weighted_row<T>(op, rows, [&](int64_t i, float weight, int64_t target) HWY_ATTR {
    const float scale = float(op.scale) * weight;
    const Joined all = join_parts(parts, i, dlogits.rows, op.loss);
    op.nll.as<float>()[i] = float(weight * (std::log(all.sum) + (all.most - all.at_target)));
    divergence[i] = float(weight * all.divergence(op.loss.reverse));
    const Slopes slopes = slopes_of(op, i, all, scale);
    const float at_target = target >= 0 ? hn::GetLane(slopes(OneLane(), target)) : 0;  // dlogits may be logits
    for_each(dlogits.cols, [&, d = dlogits[i]](auto t, int64_t j) HWY_ATTR { store(slopes(t, j), t, d + j); });
    if (target >= 0) dlogits[i][target] = T(at_target - scale * float(1 - op.loss.alpha));
  });
}
void distill_join(const DistillJoin& op, Range rows) {
  with_type_of(op.dlogits, [&]<class T>() { distill_join_rows<T>(op, rows); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
HWY_EXPORT(distill_part);
HWY_EXPORT(distill_join);
void distill_part(const DistillPart& op, Range rows) { HWY_DYNAMIC_DISPATCH(distill_part)(op, rows); }
void distill_join(const DistillJoin& op, Range rows) { HWY_DYNAMIC_DISPATCH(distill_join)(op, rows); }
}  // namespace weft::cpu
#endif
