#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/ops/cpu/experts.h"

namespace weft::cpu {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// The scores s of a token's experts, and their shares p of the sum.
struct Scores {
  float s[kMostExperts];
  float sum = 1, lse = 0;
  int64_t n = 0;
  bool sigmoid = false;

  Scores(const float* logits, int64_t experts, bool is_sigmoid) : n(experts), sigmoid(is_sigmoid) {
    const float most = *std::max_element(logits, logits + n);
    float total = 0;
    for (int64_t e = 0; e < n; ++e) total += s[e] = std::exp(logits[e] - most);
    lse = most + std::log(total);
    if (sigmoid) sum = float(kLeastSumOfScores);
    for (int64_t e = 0; e < n; ++e) s[e] = sigmoid ? 1 / (1 + std::exp(-logits[e])) : s[e] / total;
    if (sigmoid)
      for (int64_t e = 0; e < n; ++e) sum += s[e];
  }
  float p(int64_t e) const { return s[e] / sum; }
};

// What a token's experts are chosen by: the scores with the bias. Softmax without one keeps the order of the logits,
// which rounding cannot make equal.
struct Choice {
  float by[kMostExperts];
  int64_t n, of_group;

  Choice(const Route& op, int64_t token, const Scores& scores) : n(op.logits.cols()), of_group(n / op.routing.groups) {
    const float *logits = rows_of<const float>(op.logits)[token], *bias = flat<float>(op.bias);
    const bool by_logits = !op.routing.sigmoid && bias == nullptr && !op.routing.by_two;
    for (int64_t e = 0; e < n; ++e) by[e] = by_logits ? logits[e] : scores.s[e] + (bias != nullptr ? bias[e] : 0.0f);
    if (op.routing.groups > 1) close_groups(op.routing);
  }
  int32_t take_best() {
    const auto best = std::max_element(by, by + n);
    *best = kNone;
    return int32_t(best - by);
  }

 private:
  float of(int64_t group, bool by_two) const {
    float best = kNone, second = kNone;
    for (int64_t e = group * of_group; e < (group + 1) * of_group; ++e) {
      second = std::max(second, std::min(best, by[e]));
      best = std::max(best, by[e]);
    }
    return by_two && of_group > 1 ? best + second : best;
  }
  void close_groups(const Routing& r) {
    float best[kMostExpertGroups];
    bool open[kMostExpertGroups] = {};
    for (int64_t g = 0; g < r.groups; ++g) best[g] = of(g, r.by_two);
    for (int64_t i = 0; i < r.top_groups; ++i) {
      const auto g = std::max_element(best, best + r.groups) - best;
      open[g] = true;
      best[g] = kNone;
    }
    for (int64_t e = 0; e < n; ++e)
      if (!open[e / of_group]) by[e] = kNone;
  }
};

}  // namespace

void route(const Route& op, Range tokens) {
  const auto logits = rows_of<const float>(op.logits);
  const auto weights = rows_of<float>(op.weights);
  const int64_t k = op.ids.cols();
  for (int64_t i = tokens.begin; i < tokens.end; ++i) {
    const Scores scores(logits[i], logits.cols, op.routing.sigmoid);
    Choice choice(op, i, scores);
    int32_t* ids = op.ids.as<int32_t>() + i * k;
    float sum = float(op.routing.least_sum());
    for (int64_t j = 0; j < k; ++j) sum += scores.s[ids[j] = choice.take_best()];
    const float scale = float(op.routing.scale) / (op.routing.normalise ? sum : 1);
    for (int64_t j = 0; j < k && weights; ++j) weights[i][j] = scale * scores.s[ids[j]];
  }
}

namespace {

template <class T>
void route_backward_of(const RouteBackward& op, Range tokens) {
  const auto logits = rows_of<const float>(op.logits), dweights = rows_of<const float>(op.dweights),
             load = rows_of<const float>(op.load);
  const auto dlogits = rows_of<T>(op.dlogits);
  const float* whole = flat<float>(op.whole);
  const Balance& b = op.balance;
  const int64_t k = op.ids.cols(), n = logits.cols;
  const auto load_scale = float(b.load_scale), whole_scale = float(b.whole_scale), z_scale = float(2 * b.z_scale);
  for (int64_t i = tokens.begin; i < tokens.end; ++i) {
    const Scores r(logits[i], n, op.routing.sigmoid);
    const int32_t* ids = op.ids.as<int32_t>() + i * k;
    float slope[kMostExperts];  // of p, then of s
    const auto least = float(op.routing.least_sum());
    float mean_p = 0, sum = least, mean_s = 0;
    const float* of_sample = load[(b.first + i) / b.sample_tokens];
    for (int64_t e = 0; e < n; ++e) {
      slope[e] = load_scale * of_sample[e] + (whole != nullptr ? whole_scale * whole[e] : 0.0f);
      mean_p += slope[e] * r.p(e);
    }
    if (r.sigmoid)
      for (int64_t e = 0; e < n; ++e) slope[e] = (slope[e] - mean_p) / r.sum;
    for (int64_t j = 0; j < k; ++j) sum += r.s[ids[j]];
    for (int64_t j = 0; j < k; ++j) {
      float of_weight = dweights[i][j];
      if (op.routing.normalise) {  // by differences, so that the only one of a token has none to the last bit
        float apart = least * of_weight;
        for (int64_t other = 0; other < k; ++other) apart += r.s[ids[other]] * (of_weight - dweights[i][other]);
        of_weight = apart / sum / sum;
      }
      slope[ids[j]] += float(op.routing.scale) * of_weight;
    }
    for (int64_t e = 0; e < n; ++e) mean_s += slope[e] * r.s[e];
    for (int64_t e = 0; e < n; ++e) {
      const float share = r.sigmoid ? std::exp(logits[i][e] - r.lse) : r.s[e];
      dlogits[i][e] = T(r.s[e] * (r.sigmoid ? slope[e] * (1 - r.s[e]) : slope[e] - mean_s) + z_scale * r.lse * share);
    }
  }
}

}  // namespace

void route_backward(const RouteBackward& op, Range tokens) {
  with_type_of(op.dlogits, [&]<class T>() { route_backward_of<T>(op, tokens); });
}

void router_sums(const RouterSums& op, Range tokens, double* part) {
  const auto logits = rows_of<const float>(op.logits), load = rows_of<const float>(op.load);
  const int64_t k = op.ids.cols(), n = logits.cols;
  std::fill_n(part, RouterSums::size(n), 0.0);
  double *counts = part + RouterSums::kScalars, *shares = counts + n;
  for (int64_t i = tokens.begin; i < tokens.end; ++i) {
    const Scores r(logits[i], n, op.sigmoid);
    const float* of_sample = load[(op.first + i) / op.sample_tokens];
    part[1] += double(r.lse) * double(r.lse);
    for (int64_t e = 0; e < n; ++e) {
      const double p = double(r.p(e));
      part[0] += double(of_sample[e]) * p;
      if (p > 0) part[2] -= p * std::log(p);
      shares[e] += p;
    }
    for (int64_t j = 0; j < k; ++j) counts[op.ids.as<int32_t>()[i * k + j]] += 1;
  }
}

void expert_load(const ExpertLoad& op) {
  const auto load = rows_of<float>(op.load);
  const int32_t* ids = op.ids.as<int32_t>();
  const int64_t pairs = op.sample_tokens * op.ids.cols(), all = op.ids.elements();
  for (int64_t q = 0; q < load.rows; ++q) {
    int64_t counts[kMostExperts] = {};  // a sum of so many floats would be rounded as often
    for (int64_t i = q * pairs; i < std::min((q + 1) * pairs, all); ++i) ++counts[ids[i]];
    for (int64_t e = 0; e < load.cols; ++e)
      load[q][e] = (op.accumulate ? load[q][e] : 0.0f) + float(op.scale * double(counts[e]));
  }
}

void group_rows(const GroupRows& op) {
  const int32_t* ids = op.ids.as<int32_t>();
  int32_t *offsets = op.offsets.as<int32_t>(), *order = op.order.as<int32_t>(), *places = op.places.as<int32_t>();
  const int64_t pairs = op.ids.elements(), experts = op.offsets.elements() - 1;
  std::fill_n(offsets, experts + 1, 0);
  for (int64_t i = 0; i < pairs; ++i) ++offsets[ids[i] + 1];
  int32_t next[kMostExperts];
  for (int64_t e = 0; e < experts; ++e) offsets[e + 1] += next[e] = offsets[e];
  for (int64_t i = 0; i < pairs; ++i) {
    places[i] = next[ids[i]]++;
    order[places[i]] = int32_t(i);
  }
}

}  // namespace weft::cpu
