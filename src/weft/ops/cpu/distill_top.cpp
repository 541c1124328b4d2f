#include "weft/ops/cpu/distill_top.h"

#include <algorithm>
#include <cmath>

#include "weft/ops/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/ops/cpu/distill_top.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/ops/cpu/losses-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

// What the teacher's largest logits say of a token.
struct TopOfToken {
  const int32_t* ids;
  const float* logits;
  int64_t count;
  double by, lse;  // by: 1 / temperature
  double log_probability(int64_t i) const { return double(logits[i]) * by - lse; }
};
template <class Op>
TopOfToken top_of(const Op& op, int64_t i) {
  return {rows_of<const int32_t>(op.ids)[i], rows_of<const float>(op.top)[i], op.top.cols(), 1 / op.loss.temperature,
          double(op.lse.template as<float>()[i])};
}

// Walks over the n classes here, from class `first` on, in order: at(column, i) for each that is number i of the
// teacher's, gap(begin, end) for those between.
template <class Gap, class At>
HWY_INLINE void for_each_class(const TopOfToken& top, int64_t first, int64_t n, const Gap& gap, const At& at) {
  const int32_t* const end = top.ids + top.count;
  int64_t from = 0;
  for (const int32_t* id = std::lower_bound(top.ids, end, int32_t(first)); id < end && *id - first < n; ++id) {
    gap(from, *id - first);
    at(*id - first, id - top.ids);
    from = *id - first + 1;
  }
  gap(from, n);
}

// The sum of e^(scale (x[j] - most)) over n numbers.
float sum_of_exps(const float* x, int64_t n, float most, float scale) {
  return sum_of(n, [=](auto t, int64_t j) HWY_ATTR {
    return exp_of_negative(t, hn::Mul(hn::Sub(load(t, x + j), hn::Set(t, most)), hn::Set(t, scale)));
  });
}

void distill_top_part(const DistillTopPart& op, Range rows) {
  const auto logits = rows_of<const float>(op.logits);
  const auto parts = rows_of<float>(op.parts);
  const int64_t n = logits.cols;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const TopOfToken top = top_of(op, i);
    const float *const x = logits[i], most = largest(x, n), by = float(top.by);
    const int64_t target = op.targets.as<int32_t>()[i] - op.first;
    double rest = 0, mass = 0, apart = 0;
    for_each_class(
        top, op.first, n,
        [&](int64_t begin, int64_t end) HWY_ATTR { rest += sum_of_exps(x + begin, end - begin, most, by); },
        [&](int64_t j, int64_t of) HWY_ATTR {
          const double log_t = top.log_probability(of), t = std::exp(log_t);
          mass += t;
          apart += t * (log_t - (double(x[j]) - most) * top.by);
        });
    parts[i][0] = most;
    parts[i][1] = sum_of_exps(x, n, most, 1);
    parts[i][2] = target >= 0 && target < n ? x[target] : 0;
    parts[i][3] = sum_of_exps(x, n, most, by);
    parts[i][4] = float(rest);
    parts[i][5] = float(mass);
    parts[i][6] = float(apart);
  }
}

// What the ranks' parts of a token come to.
struct JoinedTop {
  float most = -INFINITY;
  double sum = 0, at_target = 0, soft = 0, rest = 0, mass = 0, apart = 0;
  // The teacher's mass on the classes beside its k; rounding may leave some where there are none.
  double taught_rest() const { return rest > 0 ? std::max(0.0, 1 - mass) : 0; }
  double divergence() const {
    const double t = taught_rest(), log_soft = std::log(soft);
    return apart + mass * log_soft + (t > 0 ? t * (std::log(t / rest) + log_soft) : 0);
  }
};
JoinedTop join_top(const Rows<const float>& parts, int64_t token, int64_t tokens, const Distillation& loss) {
  JoinedTop all;
  for (int64_t r = token; r < parts.rows; r += tokens) all.most = std::max(all.most, parts[r][0]);
  for (int64_t r = token; r < parts.rows; r += tokens) {
    const double by = double(parts[r][0]) - all.most, soft = std::exp(by / loss.temperature);
    all.sum += parts[r][1] * std::exp(by);
    all.at_target += parts[r][2];
    all.soft += parts[r][3] * soft;
    all.rest += parts[r][4] * soft;
    all.mass += parts[r][5];
    all.apart += parts[r][6] - parts[r][5] * by / loss.temperature;  // each rank's is beside a maximum of its own
  }
  return all;
}

// scale times the slope of a token's loss by its logits x; of cross-entropy without what the target takes off.
struct TopSlopes {
  const float* x;
  float most, by, log_soft;
  float of_hard, of_pull, of_rest;  // of_rest: of q, for a class beside the teacher's k

  // For a class of which the teacher's probability is known, less that; else times of_rest.
  double at(int64_t j, double log_t) const {
    const double q = std::exp((double(x[j]) - most) * by - log_soft);
    return of_pull * (q - std::exp(log_t)) + of_hard * std::exp(double(x[j]) - most);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, int64_t j) const {
    const auto beside = hn::Sub(load(d, x + j), hn::Set(d, most));
    const auto q = exp_of_negative(d, hn::Sub(hn::Mul(beside, hn::Set(d, by)), hn::Set(d, log_soft)));
    return hn::MulAdd(q, hn::Set(d, of_pull * of_rest), hn::Mul(exp_of_negative(d, beside), hn::Set(d, of_hard)));
  }
};
TopSlopes slopes_of(const DistillTopJoin& op, int64_t i, const JoinedTop& all, float scale) {
  const double t = all.taught_rest();
  return {.x = rows_of<const float>(op.logits)[i],
          .most = all.most,
          .by = float(1 / op.loss.temperature),
          .log_soft = float(std::log(all.soft)),
          .of_hard = scale * float((1 - op.loss.alpha) / all.sum),
          .of_pull = scale * float(op.loss.alpha * op.loss.temperature),
          .of_rest = float(t > 0 ? 1 - t * all.soft / all.rest : 1)};
}

template <class T>
void distill_top_join_rows(const DistillTopJoin& op, Range rows) {
  const auto parts = rows_of<const float>(op.parts);
  const auto dlogits = rows_of<T>(op.dlogits);
  float* divergence = op.divergence.as<float>();
  std::fill_n(divergence + rows.begin, rows.size(), 0.0f);
  for_each_weighted_row<T>(op, rows, [&](int64_t i, float weight, int64_t target) HWY_ATTR {
    const float scale = float(op.scale) * weight;
    const JoinedTop all = join_top(parts, i, dlogits.rows, op.loss);
    op.nll.as<float>()[i] = float(weight * (std::log(all.sum) + (all.most - all.at_target)));
    divergence[i] = float(weight * all.divergence());
    const TopSlopes slopes = slopes_of(op, i, all, scale);
    const TopOfToken top = top_of(op, i);
    const float off = scale * float(1 - op.loss.alpha);  // what the target takes off
    T* const d = dlogits[i];                             // which may be the logits: each is read before it is written
    for_each_class(
        top, op.first, dlogits.cols,
        [&](int64_t begin, int64_t end) HWY_ATTR {
          const bool here = target >= begin && target < end;
          const float at_target = here ? hn::GetLane(slopes(OneLane(), target)) : 0;
          for_each(end - begin, [&](auto t, int64_t j) HWY_ATTR { store(slopes(t, begin + j), t, d + begin + j); });
          if (here) d[target] = T(at_target - off);
        },
        [&](int64_t j, int64_t of)
            HWY_ATTR { d[j] = T(float(slopes.at(j, top.log_probability(of))) - (j == target ? off : 0)); });
  });
}
void distill_top_join(const DistillTopJoin& op, Range rows) {
  with_type_of(op.dlogits, [&]<class T>() { distill_top_join_rows<T>(op, rows); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
HWY_EXPORT(distill_top_part);
HWY_EXPORT(distill_top_join);
void distill_top_part(const DistillTopPart& op, Range rows) { HWY_DYNAMIC_DISPATCH(distill_top_part)(op, rows); }
void distill_top_join(const DistillTopJoin& op, Range rows) { HWY_DYNAMIC_DISPATCH(distill_top_join)(op, rows); }
}  // namespace weft::cpu
#endif
