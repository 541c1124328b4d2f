#include "weft/optim/spike_rule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "weft/base/error.h"

namespace weft {
namespace {

double median_of_all(std::vector<double> values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

std::optional<Spike> above(const SpikeRule& rule, const std::vector<double>& before, double value) {
  constexpr double kSigmaOfMedian = 1.4826;  // of a normal distribution: its sigma, by its median distance
  constexpr double kLeastSigma = 0.01;       // of the median's size: rows that repeat leave no distances
  const double median = median_of_all(before);
  std::vector<double> distances = before;
  for (double& d : distances) d = std::abs(d - median);
  const double sigma = std::max(kSigmaOfMedian * median_of_all(std::move(distances)), kLeastSigma * std::abs(median));
  if (!(sigma > 0)) return {};  // most are 0: any other would stand out
  const double limit = median + rule.sigma_factor * sigma;
  if (!(value > limit)) return {};
  return Spike{.value = value, .median = median, .limit = limit};
}

void add_to_window(std::vector<double>& values, double value, int64_t window) {
  values.push_back(value);
  if (const auto size = int64_t(values.size()); size > window)
    values.erase(values.begin(), values.begin() + std::ptrdiff_t(size - window));
}

}  // namespace

int64_t SpikeState::batch_of(int64_t step) const {
  int64_t batch = step;
  for (const Gap& gap : gaps)
    if (gap.step <= step) batch += gap.batches;
  return batch;
}

void SpikeState::go_past(int64_t step, int64_t batch) {
  std::erase_if(gaps, [&](const Gap& gap) { return gap.step > step; });
  const int64_t next = batch + 1 - batch_of(step);
  WEFT_CHECK(next > 0, "step {} is to go past batch {}, which it has behind it", step, batch);
  if (!gaps.empty() && gaps.back().step == step)
    gaps.back().batches += next;
  else
    gaps.push_back({step, next});
}

int64_t SpikeState::recent(int64_t batch, int64_t window) const {
  return std::count_if(batches.begin(), batches.end(), [&](int64_t b) { return b > batch - window && b <= batch; });
}

std::optional<Spike> SpikeRule::find(const SpikeState& state, double loss, double grad_norm) const {
  if (int64_t(state.losses.size()) < (window + 1) / 2) return {};
  if (const auto spike = above(*this, state.losses, loss)) return spike;
  auto spike = above(*this, state.grad_norms, grad_norm);
  if (spike) spike->is_of_loss = false;
  return spike;
}

void SpikeRule::add(SpikeState& state, double loss, double grad_norm) const {
  add_to_window(state.losses, loss, window);
  add_to_window(state.grad_norms, grad_norm, window);
}

}  // namespace weft
