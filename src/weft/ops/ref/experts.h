// Reference kernels of mixtures of experts.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "weft/ops/ref/matrix.h"
#include "weft/ops/ref/view.h"

namespace weft::ref {

template <class T>
struct RouterScores {
  std::vector<T> s, p;  // scores; the same as shares of their sum
  T sum, lse;           // of scores; log-sum-exp of logits
};

template <class T>
RouterScores<T> router_scores(const T* logits, int64_t n, bool sigmoid) {
  using std::exp;
  using std::log;
  double most = real_part(logits[0]);
  for (int64_t e = 1; e < n; ++e) most = std::max(most, real_part(logits[e]));
  T total(0);
  for (int64_t e = 0; e < n; ++e) total += exp(logits[e] - most);
  RouterScores<T> r{{}, {}, T(sigmoid ? kLeastSumOfScores : 0), most + log(total)};
  for (int64_t e = 0; e < n; ++e) {
    r.s.push_back(sigmoid ? T(1) / (T(1) + exp(-logits[e])) : exp(logits[e] - r.lse));
    r.sum += r.s.back();
  }
  for (const T& s : r.s) r.p.push_back(sigmoid ? s / r.sum : s);
  return r;
}

// The `count` best of [0, n) by value(i), the best first, of equal ones the first.
template <class F>
std::vector<int64_t> best_of(int64_t n, int64_t count, const F& value) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(i);
  std::stable_sort(all.begin(), all.end(), [&](int64_t a, int64_t b) { return value(a) > value(b); });
  all.resize(size_t(count));
  return all;
}

// Whether experts of a group may be chosen, by the groups' best or sum of two best.
inline std::vector<char> open_groups(const std::vector<double>& choice, const Routing& r) {
  const int64_t of_group = int64_t(choice.size()) / r.groups;
  std::vector<double> best;
  for (int64_t g = 0; g < r.groups; ++g) {
    std::vector<double> of(choice.begin() + g * of_group, choice.begin() + (g + 1) * of_group);
    std::sort(of.begin(), of.end(), std::greater<>());
    best.push_back(r.by_two && of.size() > 1 ? of[0] + of[1] : of[0]);
  }
  std::vector<char> open(static_cast<size_t>(r.groups));
  for (const int64_t g : best_of(r.groups, r.top_groups, [&](int64_t i) { return best[size_t(i)]; }))
    open[size_t(g)] = 1;
  return open;
}

inline std::vector<int64_t> chosen_experts(const std::vector<double>& choice, int64_t k, const Routing& r) {
  const auto n = int64_t(choice.size());
  const std::vector<char> open = open_groups(choice, r);
  return best_of(n, k, [&](int64_t e) {
    return open[size_t(e / (n / r.groups))] ? choice[size_t(e)] : -std::numeric_limits<double>::infinity();
  });
}

template <class T>
void run(const Route& op, int) {
  const auto logits = rows<T>(op.logits), weights = rows<T>(op.weights);
  const T* bias = flat<T>(op.bias);
  const int64_t k = op.ids.cols(), n = logits.cols;
  for (int64_t i = 0; i < logits.rows; ++i) {
    const RouterScores<T> r = router_scores(logits[i], n, op.routing.sigmoid);
    std::vector<double> choice;
    for (int64_t e = 0; e < n; ++e) choice.push_back(real_part(r.s[size_t(e)]) + (bias ? real_part(bias[e]) : 0.0));
    const auto chosen = chosen_experts(choice, k, op.routing);
    T sum(op.routing.least_sum());
    for (const int64_t e : chosen) sum += r.s[size_t(e)];
    for (int64_t j = 0; j < k; ++j) {
      op.ids.as<int32_t>()[i * k + j] = int32_t(chosen[size_t(j)]);
      if (weights)
        weights[i][j] = op.routing.scale * r.s[size_t(chosen[size_t(j)])] / (op.routing.normalise ? sum : T(1));
    }
  }
}

// The gradient of a token's logits from those of its scores s and of their shares p.
template <class T>
void logits_slopes(const RouterScores<T>& r, bool sigmoid, std::vector<T> ds, const std::vector<T>& dp, T* to) {
  T mean_p(0), mean_s(0);
  for (size_t e = 0; e < dp.size(); ++e) mean_p += dp[e] * r.p[e];
  for (size_t e = 0; e < ds.size(); ++e) {
    ds[e] += sigmoid ? (dp[e] - mean_p) / r.sum : dp[e];
    mean_s += ds[e] * r.s[e];
  }
  for (size_t e = 0; e < ds.size(); ++e) to[e] = r.s[e] * (sigmoid ? ds[e] * (T(1) - r.s[e]) : ds[e] - mean_s);
}

template <class T>
void run(const RouteBackward& op, int) {
  using std::exp;
  const auto logits = rows<T>(op.logits), dweights = rows<T>(op.dweights), load = rows<T>(op.load),
             dlogits = rows<T>(op.dlogits);
  const T* whole = flat<T>(op.whole);
  const int64_t k = op.ids.cols(), n = logits.cols;
  const Balance& b = op.balance;
  for (int64_t i = 0; i < logits.rows; ++i) {
    const RouterScores<T> r = router_scores(logits[i], n, op.routing.sigmoid);
    const int32_t* ids = op.ids.as<int32_t>() + i * k;
    T sum(op.routing.least_sum());
    for (int64_t j = 0; j < k; ++j) sum += r.s[size_t(ids[j])];
    std::vector<T> ds(size_t(n), T(0)), dp(size_t(n), T(0));
    for (int64_t j = 0; j < k; ++j) {
      T apart = op.routing.least_sum() * dweights[i][j];
      for (int64_t other = 0; other < k; ++other)
        apart += r.s[size_t(ids[other])] * (dweights[i][j] - dweights[i][other]);
      ds[size_t(ids[j])] = op.routing.scale * (op.routing.normalise ? apart / sum / sum : dweights[i][j]);
    }
    for (int64_t e = 0; e < n; ++e)
      dp[size_t(e)] =
          b.load_scale * load[(b.first + i) / b.sample_tokens][e] + (whole ? b.whole_scale * whole[e] : T(0));
    logits_slopes(r, op.routing.sigmoid, std::move(ds), dp, dlogits[i]);
    for (int64_t e = 0; e < n; ++e) dlogits[i][e] += 2 * b.z_scale * r.lse * exp(logits[i][e] - r.lse);
  }
}

template <class T>
void run(const RouterSums& op, int) {
  using std::log;
  const auto logits = rows<T>(op.logits), load = rows<T>(op.load);
  const int64_t k = op.ids.cols(), n = logits.cols;
  T* sums = flat<T>(op.sums);
  for (int64_t i = 0; i < logits.rows; ++i) {
    const RouterScores<T> r = router_scores(logits[i], n, op.sigmoid);
    sums[1] += r.lse * r.lse;
    for (int64_t e = 0; e < n; ++e) {
      const T p = r.p[size_t(e)];
      sums[0] += load[(op.first + i) / op.sample_tokens][e] * p;
      if (real_part(p) > 0) sums[2] -= p * log(p);
      sums[RouterSums::kScalars + n + e] += p;
    }
    for (int64_t j = 0; j < k; ++j) sums[RouterSums::kScalars + op.ids.as<int32_t>()[i * k + j]] += T(1);
  }
}

template <class T>
void run(const ExpertLoad& op, int) {
  const auto load = rows<T>(op.load);
  if (!op.accumulate) each<T>(op.load, [](int64_t, int64_t) { return T(0); });
  const int64_t k = op.ids.cols();
  for (int64_t i = 0; i < op.ids.elements(); ++i)
    load[i / k / op.sample_tokens][op.ids.as<int32_t>()[i]] += T(op.scale);
}

template <class T>
void run(const GroupRows& op, int) {
  const int32_t* ids = op.ids.as<int32_t>();
  int32_t row = 0;
  for (int64_t e = 0; e + 1 < op.offsets.elements(); ++e) {
    op.offsets.as<int32_t>()[e] = row;
    for (int64_t i = 0; i < op.ids.elements(); ++i) {
      if (ids[i] != e) continue;
      op.order.as<int32_t>()[row] = int32_t(i);
      op.places.as<int32_t>()[i] = row++;
    }
  }
  op.offsets.as<int32_t>()[op.offsets.elements() - 1] = row;
}

template <class T>
void run(const GatherRows& op, int) {
  const auto x = rows<T>(op.x);
  const int32_t* order = op.order.as<int32_t>();
  each<T>(op.out, [&](int64_t i, int64_t j) { return order[i] < 0 ? T(0) : x[order[i] / op.per][j]; });
}

template <class T>
void run(const SumRows& op, int) {
  const auto x = rows<T>(op.x);
  const int64_t k = op.places.cols();
  each<T>(op.out, [&](int64_t i, int64_t j) {
    T sum(0);
    for (int64_t p = 0; p < k; ++p)
      if (const int32_t row = op.places.as<int32_t>()[i * k + p]; row >= 0) sum += x[row][j];
    return sum;
  });
}

template <class T>
T row_scale(T scale, bool sigmoid) {
  using std::exp;
  return sigmoid ? T(1) / (T(1) + exp(-scale)) : scale;
}

template <class T>
void run(const ScaleRows& op, int) {
  const auto x = rows<T>(op.x);
  const T* scale = flat<T>(op.scale);
  each<T>(op.y, [&](int64_t i, int64_t j) { return row_scale(scale[i], op.sigmoid) * x[i][j]; });
}

template <class T>
void run(const ScaleRowsBackward& op, int) {
  const auto x = rows<T>(op.x), dy = rows<T>(op.dy), dx = rows<T>(op.dx);
  const T* scale = flat<T>(op.scale);
  T* dscale = flat<T>(op.dscale);
  for (int64_t i = 0; i < x.rows; ++i) {
    const T g = row_scale(scale[i], op.sigmoid);
    T dot(0);
    for (int64_t j = 0; j < x.cols; ++j) dot += dy[i][j] * x[i][j];
    for (int64_t j = 0; j < x.cols; ++j) dx[i][j] = g * dy[i][j];
    dscale[i] = op.sigmoid ? g * (T(1) - g) * dot : dot;
  }
}

// The group that row r is of; as many as there are behind the last one's.
inline int64_t group_of(const Tensor& offsets, int64_t r) {
  int64_t g = 0;
  while (g + 1 < offsets.elements() && r >= offsets.as<int32_t>()[g + 1]) ++g;
  return g;
}

template <class T>
void run(const GroupedMatmul& op, int threads) {
  const auto x = rows<T>(op.x), w = rows<T>(op.w), out = rows<T>(op.out);
  const int64_t wide = op.rows_of_group();
  spread(x.rows, x.rows * x.cols * out.cols < kFewProducts ? 1 : threads, [&](int64_t r) {
    const int64_t g = group_of(op.offsets, r);
    for (int64_t j = 0; j < out.cols; ++j) {
      T sum(0);
      for (int64_t i = 0; i < x.cols && g < op.groups(); ++i)
        sum += x[r][i] * (op.turned ? w[g * wide + i][j] : w[g * wide + j][i]);
      out[r][j] = sum;
    }
  });
}

template <class T>
void run(const GroupedWeightGrad& op, int threads) {
  const auto dy = rows<T>(op.dy), x = rows<T>(op.x), dw = rows<T>(op.dw);
  const int64_t wide = op.rows_of_group();
  const int32_t* at = op.offsets.as<int32_t>();
  spread(dw.rows, x.rows * x.cols * wide < kFewProducts ? 1 : threads, [&](int64_t i) {
    const int64_t g = i / wide;
    for (int64_t j = 0; j < dw.cols; ++j) {
      T sum(0);
      for (int64_t r = at[g]; r < at[g + 1]; ++r) sum += dy[r][i % wide] * x[r][j];
      dw[i][j] = op.accumulate ? dw[i][j] + sum : sum;
    }
  });
}

}  // namespace weft::ref
