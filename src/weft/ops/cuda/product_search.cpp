#include "weft/ops/cuda/product_search.h"

#include <algorithm>
#include <utility>

namespace weft {

ProductChoice::ProductChoice(const ProductWay& first, int64_t outputs, const std::optional<ProductWay>& kept)
    : first_(first), way_(first), found_(kept) {
  open_ = kept != first && outputs >= kLeastOutputs;
}

std::optional<ProductWay> ProductChoice::learn(ProductTrial& trial) {
  const int64_t telling = trial.telling();
  if (telling >= kLeastOfCall) {
    if (found_ && !trial.same_bits(*found_)) {
      refuted_.push_back(*found_);
      found_.reset(), telling_ = 0, proofs_ = 0;
    }
    if (!found_) {
      const std::vector<ProductWay> ways = trial.ways();
      const auto first_s = trial.seconds_of(first_);
      if (ways.empty() || !first_s) return pass(), std::nullopt;
      found_ = search(trial, ways, *first_s);
      if (!found_) return settle(first_);
    }
    telling_ += telling, ++proofs_;
    if (telling_ >= kLeastTelling && proofs_ >= kLeastProofs) return settle(*found_);
  } else {
    left_out_ = gap_;
    gap_ *= 2;
  }
  pass();
  return {};
}

bool ProductChoice::is_due() {
  if (left_out_ == 0) return open_;
  --left_out_;
  return false;
}

void ProductChoice::pass() {
  if (++trials_ >= kMostTrials) open_ = false;
}

std::optional<ProductWay> ProductChoice::settle(const ProductWay& way) {
  way_ = way, open_ = false;
  return way;
}

// The fastest other way that is worthwhile and has the first choice's bits here.
std::optional<ProductWay> ProductChoice::search(ProductTrial& trial, const std::vector<ProductWay>& ways,
                                                double first_s) const {
  double spent = kRunsToTime * first_s;
  std::vector<std::pair<double, ProductWay>> faster;
  for (const ProductWay& way : ways) {
    const bool refuted = std::find(refuted_.begin(), refuted_.end(), way) != refuted_.end();
    if (way == first_ || refuted || spent > kMostSearchSeconds) continue;
    const auto seconds = trial.seconds_of(way);
    if (!seconds) continue;
    spent += kRunsToTime * *seconds;
    if (*seconds < kWorthwhile * first_s) faster.emplace_back(*seconds, way);
  }
  std::stable_sort(faster.begin(), faster.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [seconds, way] : faster)
    if (trial.same_bits(way)) return way;
  return {};
}

}  // namespace weft
