// Reference kernels: the loss of a student beside the largest logits of its teacher.
#pragma once
#include <algorithm>

#include "weft/ops/ref/pointwise.h"

namespace weft::ref {

// Where class `id` stands among the teacher's k of token i, or -1.
template <class Op>
int64_t place_of(const Op& op, int64_t i, int64_t id) {
  const int32_t *ids = op.ids.template as<int32_t>() + i * op.ids.row_stride, *end = ids + op.ids.cols();
  const int32_t* const at = std::lower_bound(ids, end, int32_t(id));
  return at < end && *at == id ? at - ids : -1;
}

// What the ranks' parts of a token come to.
template <class T>
struct JoinedTop {
  double most = -INFINITY;
  T sum = T(0), at_target = T(0), soft = T(0), rest = T(0), mass = T(0), apart = T(0);
  // The teacher's mass on the classes beside its k; rounding may leave some where there are none.
  T taught_rest() const { return real_part(rest) > 0 && real_part(mass) < 1 ? 1.0 - mass : T(0); }
  T divergence() const {
    const T t = taught_rest(), of_all = apart + mass * std::log(soft);
    return real_part(t) > 0 ? of_all + t * (std::log(t) - std::log(rest) + std::log(soft)) : of_all;
  }
};
template <class T, class Parts>
JoinedTop<T> join_top(const Parts& parts, int64_t token, int64_t tokens, const Distillation& loss) {
  JoinedTop<T> all;
  for (int64_t r = token; r < parts.rows; r += tokens) all.most = std::max(all.most, real_part(parts[r][0]));
  for (int64_t r = token; r < parts.rows; r += tokens) {
    const double by = real_part(parts[r][0]) - all.most, soft = std::exp(by / loss.temperature);
    all.sum += parts[r][1] * std::exp(by);
    all.at_target += parts[r][2];
    all.soft += parts[r][3] * soft;
    all.rest += parts[r][4] * soft;
    all.mass += parts[r][5];
    all.apart += parts[r][6] - parts[r][5] * (by / loss.temperature);
  }
  return all;
}

template <class T>
void run(const DistillTopPart& op, int) {
  const auto logits = rows<T>(op.logits), top = rows<T>(op.top), parts = rows<T>(op.parts);
  const double temperature = op.loss.temperature;
  for (int64_t i = 0; i < logits.rows; ++i) {
    const int64_t at = op.targets.as<int32_t>()[i] - op.first;
    double m = -INFINITY;
    for (int64_t j = 0; j < logits.cols; ++j) m = std::max(m, real_part(logits[i][j]));
    T sum(0), soft(0), rest(0), mass(0), apart(0);
    for (int64_t j = 0; j < logits.cols; ++j) {
      const T x = (logits[i][j] - m) / temperature;
      sum += std::exp(logits[i][j] - m);
      soft += std::exp(x);
      const int64_t of = place_of(op, i, op.first + j);
      if (of < 0) {
        rest += std::exp(x);
        continue;
      }
      const T log_t = top[i][of] / temperature - flat<T>(op.lse)[i];
      mass += std::exp(log_t);
      apart += std::exp(log_t) * (log_t - x);
    }
    const T all[] = {T(m), sum, at >= 0 && at < logits.cols ? logits[i][at] : T(0), soft, rest, mass, apart};
    std::copy(std::begin(all), std::end(all), parts[i]);
  }
}

template <class T>
void run(const DistillTopJoin& op, int) {
  const auto logits = rows<T>(op.logits), top = rows<T>(op.top), dlogits = rows<T>(op.dlogits),
             parts = rows<T>(op.parts);
  const double temperature = op.loss.temperature, alpha = op.loss.alpha;
  for (int64_t i = 0; i < logits.rows; ++i) {
    const double weight = real_part(flat<T>(op.weights)[i]);
    const int64_t target = op.targets.as<int32_t>()[i] - op.first;
    const auto all = join_top<T>(parts, i, logits.rows, op.loss);
    const T t_rest = all.taught_rest();
    flat<T>(op.nll)[i] = weight != 0 ? weight * (all.most + std::log(all.sum) - all.at_target) : T(0);
    flat<T>(op.divergence)[i] = weight != 0 ? weight * all.divergence() : T(0);
    for (int64_t j = 0; j < logits.cols; ++j) {
      const T p = std::exp(logits[i][j] - all.most) / all.sum;
      const T q = std::exp((logits[i][j] - all.most) / temperature) / all.soft;
      const int64_t of = place_of(op, i, op.first + j);
      const T t = of >= 0                 ? std::exp(top[i][of] / temperature - flat<T>(op.lse)[i])
                  : real_part(t_rest) > 0 ? q * t_rest * all.soft / all.rest
                                          : T(0);
      const T slope = alpha * temperature * (q - t) + (1 - alpha) * (p - (j == target ? 1.0 : 0.0));
      dlogits[i][j] = weight != 0 ? op.scale * weight * slope : T(0);
    }
  }
}

}  // namespace weft::ref
