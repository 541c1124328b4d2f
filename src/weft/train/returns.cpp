#include "weft/train/returns.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

constexpr double kLeastVariance = 1e-8;  // that is added to it

void whiten(std::vector<double>& all) {
  const auto n = double(all.size());
  double mean = 0, squares = 0;
  for (const double x : all) mean += x / n;
  for (const double x : all) squares += (x - mean) * (x - mean);
  const double deviation = std::sqrt(squares / std::max(1.0, n - 1) + kLeastVariance);
  for (double& x : all) x = (x - mean) / deviation;
}

}  // namespace

Returns returns_of(const IdRows& rows, int64_t row, const Recipe::Objective& o) {
  const auto old_logps = rows.token_numbers(row, 0), ref_logps = rows.token_numbers(row, 1),
             values = rows.token_numbers(row, 2);
  const size_t n = values.size();
  Returns r{std::vector<double>(n), std::vector<double>(n)};
  double next_value = 0, next_advantage = 0;
  for (size_t t = n; t-- > 0;) {
    const double reward = (t + 1 == n ? rows.number(row) : 0) - o.kl_coef * (old_logps[t] - ref_logps[t]);
    const double delta = reward + o.gamma * next_value - values[t];
    r.advantages[t] = next_advantage = delta + o.gamma * o.lambda * next_advantage;
    r.returns[t] = next_advantage + values[t];
    next_value = values[t];
  }
  return r;
}

BatchReturns::BatchReturns(const RowOrder& order, const Recipe& recipe, const BatchPlace& place)
    : order_(order), objective_(recipe.objective), rows_of_batch_(recipe.train.global_batch_size), place_(place) {}

BatchReturns::OfSequence BatchReturns::of(int64_t batch, int64_t sequence) {
  if (batch != open_) open(batch);
  const size_t first = sequence == 0 ? 0 : ends_[size_t(sequence - 1)], n = ends_[size_t(sequence)] - first;
  return {std::span(all_.advantages).subspan(first, n), std::span(all_.returns).subspan(first, n)};
}

void BatchReturns::open(int64_t batch) {
  all_ = {};
  ends_.clear();
  const int64_t first = place_.sample_of(batch, rows_of_batch_);
  for (int64_t i = 0; i < rows_of_batch_; ++i) {
    const Returns r = returns_of(order_.id_rows(), order_.row_of(first + i), objective_);
    all_.advantages.insert(all_.advantages.end(), r.advantages.begin(), r.advantages.end());
    all_.returns.insert(all_.returns.end(), r.returns.begin(), r.returns.end());
    ends_.push_back(all_.returns.size());
  }
  if (objective_.whiten_advantages) whiten(all_.advantages);
  open_ = batch;
}

}  // namespace weft
