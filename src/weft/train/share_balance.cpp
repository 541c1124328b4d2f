#include "weft/train/share_balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "weft/base/error.h"
#include "weft/schedule/shares.h"

namespace weft {
namespace {

constexpr double kLeast = 1e-9;  // seconds of a step: no clock sees less

}  // namespace

ShareBalance::ShareBalance(std::vector<int64_t> shares) : shares_(std::move(shares)), each_s_(shares_.size(), 0) {}

// The speed of a rank is one over what a micro-batch takes it; what a step takes it beside them counts as part of them.
std::optional<ShareBalance::Change> ShareBalance::better(const std::vector<double>& each_s) const {
  std::vector<double> speeds;
  for (const double s : each_s) speeds.push_back(1 / s);
  Change change{.shares = shares_by_weight(speeds, std::accumulate(shares_.begin(), shares_.end(), int64_t{0}))};
  for (size_t r = 0; r < each_s.size(); ++r) {
    const double now = each_s[r] * double(shares_[r]);
    if (now > change.slowest_s) change.slowest = int64_t(r);
    change.slowest_s = std::max(change.slowest_s, now);
    change.then_s = std::max(change.then_s, each_s[r] * double(change.shares[r]));
  }
  if (change.then_s > (1 - kGains) * change.slowest_s || refused_.count(change.shares) > 0) return {};
  return change;
}

std::optional<ShareBalance::Change> ShareBalance::add(std::span<const double> compute_s) {
  WEFT_CHECK(compute_s.size() == shares_.size(), "times of {} ranks of dp, of which there are {}", compute_s.size(),
             shares_.size());
  const bool timed =
      std::all_of(compute_s.begin(), compute_s.end(), [](double s) { return s > kLeast && std::isfinite(s); });
  std::vector<double> each_s;
  for (size_t r = 0; r < shares_.size(); ++r) each_s.push_back(compute_s[r] / double(shares_[r]));
  if (!timed || !better(each_s)) {
    windows_ = 0;
    std::fill(each_s_.begin(), each_s_.end(), 0.0);
    return {};
  }
  for (size_t r = 0; r < each_s.size(); ++r) each_s_[r] += each_s[r];
  if (++windows_ < kWindows) return {};
  std::vector<double> mean_s;
  for (const double s : each_s_) mean_s.push_back(s / double(windows_));
  windows_ = 0;
  std::fill(each_s_.begin(), each_s_.end(), 0.0);
  return better(mean_s);
}

}  // namespace weft
