#include "weft/forecast/scaling_law_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <random>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr size_t kRunsForThree = 4, kRunsForFive = 6;  // one more than there are numbers
constexpr int kSizesForFive = 3;
constexpr double kDistinct = 1.05, kTogether = 0.98;
constexpr int kLaws = 200;
constexpr double kLeastExponent = 0.05, kMostExponent = 1, kGrid = 0.05, kFinest = 1e-4;
constexpr uint64_t kSeed = 20;

struct Fitted {
  ScalingLaw law = {};
  double error = 0;  // the sum of squares
};

// Symmetric equations in the unknowns of `mask`; none where they are singular or an unknown is below 0.
std::optional<std::array<double, 3>> solve(const std::array<std::array<double, 4>, 3>& all, unsigned mask) {
  std::vector<int> of;
  for (int i = 0; i < 3; ++i)
    if (mask >> i & 1) of.push_back(i);
  const size_t n = of.size();
  std::vector<std::vector<double>> m(n, std::vector<double>(n + 1));
  for (size_t r = 0; r < n; ++r) {
    for (size_t c = 0; c < n; ++c) m[r][c] = all[size_t(of[r])][size_t(of[c])];
    m[r][n] = all[size_t(of[r])][3];
  }
  for (size_t r = 0; r < n; ++r) {  // positive definite but for rounding: no pivots are needed
    if (!(m[r][r] > 1e-13)) return std::nullopt;
    for (size_t below = 0; below < n; ++below) {
      if (below == r) continue;
      const double factor = m[below][r] / m[r][r];
      for (size_t c = r; c <= n; ++c) m[below][c] -= factor * m[r][c];
    }
  }
  std::array<double, 3> x = {};
  for (size_t r = 0; r < n; ++r) {
    x[size_t(of[r])] = m[r][n] / m[r][r];
    if (x[size_t(of[r])] < 0) return std::nullopt;
  }
  return x;
}

// Points in the units of their geometric means, so that columns are of one size.
struct Points {
  std::vector<double> parameters, tokens, losses;
  double mean_parameters = 1, mean_tokens = 1;
};

// The best e, a and b with these exponents.
Fitted with_exponents(const Points& p, double alpha, double beta) {
  const size_t n = p.losses.size();
  std::vector<std::array<double, 3>> rows(n);
  std::array<std::array<double, 4>, 3> normal = {};
  for (size_t i = 0; i < n; ++i) {
    rows[i] = {1 / p.losses[i], std::pow(p.parameters[i], -alpha) / p.losses[i],
               std::pow(p.tokens[i], -beta) / p.losses[i]};
    for (size_t r = 0; r < 3; ++r) {
      for (size_t c = 0; c < 3; ++c) normal[r][c] += rows[i][r] * rows[i][c];
      normal[r][3] += rows[i][r];
    }
  }
  Fitted best{.error = HUGE_VAL};
  for (unsigned mask = 1; mask < 8; ++mask) {
    const auto x = solve(normal, mask);
    if (!x) continue;
    double error = 0;
    for (const auto& row : rows) error += std::pow(row[0] * (*x)[0] + row[1] * (*x)[1] + row[2] * (*x)[2] - 1, 2);
    if (error >= best.error) continue;
    best = {{.e = (*x)[0],
             .a = (*x)[1] * std::pow(p.mean_parameters, alpha),
             .alpha = alpha,
             .b = (*x)[2] * std::pow(p.mean_tokens, beta),
             .beta = beta},
            error};
  }
  return best;
}

Fitted refined(const Points& p, Fitted best, double step) {
  for (; step > kFinest; step /= 2)
    for (bool better = true; better;) {
      better = false;
      const double alpha = best.law.alpha, beta = best.law.beta;
      for (const auto& [da, db] :
           {std::pair{step, 0.0}, {-step, 0.0}, {0.0, step}, {0.0, -step}, {step, -step}, {-step, step}}) {
        if (std::min(alpha + da, beta + db) < kLeastExponent || std::max(alpha + da, beta + db) > kMostExponent)
          continue;
        const Fitted one = with_exponents(p, alpha + da, beta + db);
        if (one.error >= best.error * (1 - 1e-9)) continue;
        best = one;
        better = true;
      }
    }
  return best;
}

Fitted fitted(const Points& p, bool exponents) {
  const ScalingLaw known = published_law().best;
  Fitted best = with_exponents(p, known.alpha, known.beta);
  if (!exponents) return best;
  for (double alpha = kLeastExponent; alpha <= kMostExponent; alpha += kGrid)
    for (double beta = kLeastExponent; beta <= kMostExponent; beta += kGrid)
      if (const Fitted one = with_exponents(p, alpha, beta); one.error < best.error) best = one;
  return refined(p, best, kGrid / 2);
}

int distinct(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  int count = 0;
  double last = 0;
  for (const double v : values)
    if (v > last * kDistinct) {
      ++count;
      last = v;
    }
  return count;
}

double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  double mx = 0, my = 0, xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i)
    mx += std::log(x[i]) / double(x.size()), my += std::log(y[i]) / double(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double a = std::log(x[i]) - mx, b = std::log(y[i]) - my;
    xx += a * a, yy += b * b, xy += a * b;
  }
  return xy / std::sqrt(xx * yy);
}

Points points_of(const std::vector<LawPoint>& given) {
  Points p;
  for (const LawPoint& one : given) {
    p.parameters.push_back(one.parameters);
    p.tokens.push_back(tokens_of_small_batches(one.tokens, one.batch_tokens, one.loss));
    p.losses.push_back(one.loss);
    p.mean_parameters *= std::pow(p.parameters.back(), 1 / double(given.size()));
    p.mean_tokens *= std::pow(p.tokens.back(), 1 / double(given.size()));
  }
  for (double& x : p.parameters) x /= p.mean_parameters;
  for (double& x : p.tokens) x /= p.mean_tokens;
  return p;
}

void check(const std::vector<LawPoint>& given, const Points& p) {
  const int sizes = distinct(p.parameters), lengths = distinct(p.tokens);
  if (given.size() < kRunsForThree || sizes < 2 || lengths < 2)
    throw ConfigError(fmt::format(
        "a law of loss is fitted to {} run{} of {} size{} of models and {} number{} of tokens: it takes {} runs, two "
        "sizes and two numbers of tokens at least; the nearest that works: the published law, without --runs",
        given.size(), given.size() == 1 ? "" : "s", sizes, sizes == 1 ? "" : "s", lengths, lengths == 1 ? "" : "s",
        kRunsForThree));
  if (std::abs(correlation(p.parameters, p.tokens)) > kTogether)
    throw ConfigError(
        "larger models have learned from more tokens in all of these runs, so that they do not tell what either adds; "
        "what works: a further run of a small model with many tokens, or the published law, without --runs");
  for (const LawPoint& one : given)
    if (one.experts != given[0].experts)
      throw ConfigError(fmt::format("{} and {}: one of the two has experts, and a law is of models of one kind",
                                    given[0].run, one.run));
}

double says(const Fitted& f, const Points& p, size_t i) {
  return f.law.loss(p.parameters[i] * p.mean_parameters, p.tokens[i] * p.mean_tokens);
}

// Laws of the same runs with other errors. A fit takes up some of them: the rest are made as large as they were.
std::vector<ScalingLaw> laws_beside(const Fitted& best, const Points& p, bool exponents) {
  const size_t n = p.losses.size();
  const double grown = std::sqrt(double(n) / double(n - (exponents ? 5 : 3)));
  std::mt19937_64 random(kSeed);
  std::vector<ScalingLaw> laws;
  for (int k = 0; k < kLaws; ++k) {
    Points other = p;
    for (size_t i = 0; i < n; ++i) {
      const size_t from = size_t((random() >> 11) % n);
      other.losses[i] = says(best, p, i) * (1 + grown * (p.losses[from] / says(best, p, from) - 1));
    }
    const Fitted start = with_exponents(other, best.law.alpha, best.law.beta);
    laws.push_back(exponents ? refined(other, start, kGrid).law : start.law);
  }
  return laws;
}

}  // namespace

LawPoint law_point(const RecordedRun& run) {
  const Recipe& r = run.recipe;
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("{}: {}, of which a law of loss says nothing; leave the run out", run.folder, why));
  };
  if (r.model.init != InitChoice::random) refuse("begins with trained weights");
  if (r.adapter.kind != AdapterKind::none) refuse("trains an adapter");
  if (r.train.objective != ObjectiveKind::cross_entropy) refuse("has another objective than cross-entropy");
  if (run.metrics.steps.empty()) refuse("has trained no step yet");
  LawPoint point{.run = run.folder, .parameters = parameters_of(run.config.spec)};
  point.experts = run.config.spec.has_experts();
  const std::vector<StepRecord>& steps = run.metrics.steps;
  for (const StepRecord& s : steps) point.tokens += tokens_of_step(r, s);
  point.batch_tokens = tokens_of_step(r, steps.back());
  const size_t last = std::max<size_t>(1, steps.size() / 20);
  for (size_t i = steps.size() - last; i < steps.size(); ++i) point.loss += steps[i].loss / double(last);
  for (const EvalRecord& e : run.metrics.evals)
    if (std::isfinite(e.loss)) point.loss = e.loss;
  if (!(point.loss > 0 && std::isfinite(point.loss))) refuse("ends without a loss");
  return point;
}

LossLaw fit_law(const std::vector<LawPoint>& given) {
  const Points p = points_of(given);
  check(given, p);
  const bool exponents =
      given.size() >= kRunsForFive && distinct(p.parameters) >= kSizesForFive && distinct(p.tokens) >= kSizesForFive;
  const Fitted best = fitted(p, exponents);
  return {.source = fmt::format("fitted to {} runs, {:.2g} % off in the mean square{}; ranges are those of {} fits "
                                "with such errors",
                                given.size(), 100 * std::sqrt(best.error / double(given.size())),
                                exponents ? "" : ", with the exponents of Besiroglu et al. 2024", kLaws),
          .best = best.law,
          .others = laws_beside(best, p, exponents)};
}

}  // namespace weft
