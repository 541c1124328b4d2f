#include "weft/data/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr uint64_t kWhole = uint64_t(1) << 63;

// floor(k * share), exact: how many of the first k samples go left.
int64_t left_of(int64_t k, uint64_t share) { return int64_t((static_cast<unsigned __int128>(k) * share) >> 63); }

double sum(const std::vector<double>& weights, size_t first, size_t last) {
  return std::accumulate(weights.begin() + std::ptrdiff_t(first), weights.begin() + std::ptrdiff_t(last), 0.0);
}

}  // namespace

Mixture::Mixture(const std::vector<double>& weights) {
  for (double w : weights)
    if (!std::isfinite(w) || w < 0) throw ConfigError(fmt::format("data.weights: {} is no share", w));
  const double all = sum(weights, 0, weights.size());
  if (!std::isfinite(all) || all <= 0)
    throw ConfigError(fmt::format("data.weights add up to {}: none of the sources would be read", all));
  nodes_.reserve(2 * weights.size() - 1);
  split(weights, 0, weights.size());
}

// Appends the tree over sources [first, last).
size_t Mixture::split(const std::vector<double>& weights, size_t first, size_t last) {
  const size_t node = nodes_.size(), middle = first + (last - first + 1) / 2;
  nodes_.push_back({first, last, middle, 0});
  if (last - first == 1) return node;
  const double left = sum(weights, first, middle), right = sum(weights, middle, last);
  // A source of weight 0 is never read; where both halves are 0, this node is not reached.
  const double share = left + right > 0 ? left / (left + right) : 0;
  nodes_[node].left = right == 0 ? kWhole : uint64_t(std::ldexp(share, 63));
  split(weights, first, middle);
  split(weights, middle, last);
  return node;
}

Mixture::Turn Mixture::operator()(int64_t sample) const {
  int64_t k = sample;
  size_t at = 0;
  while (nodes_[at].last - nodes_[at].first > 1) {
    const Node& n = nodes_[at];
    const int64_t before = left_of(k, n.left);
    const bool goes_left = left_of(k + 1, n.left) > before;
    k = goes_left ? before : k - before;
    at += goes_left ? 1 : 2 * (n.middle - n.first);
  }
  return {nodes_[at].first, k};
}

}  // namespace weft
