#include "weft/train/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/base/rng.h"
#include "weft/sharding/text_ranks.h"

namespace weft {

namespace {

// Tokens, the likeliest first and of equals the lowest, sorted only as far as somebody asks: one draw needs a few.
class LikeliestFirst {
 public:
  explicit LikeliestFirst(std::span<const double> logits) : logits_(logits), order_(logits.size()) {
    std::iota(order_.begin(), order_.end(), 0);
  }
  int32_t operator[](size_t i) {
    while (i >= sorted_) sort_more();
    return order_[i];
  }

 private:
  void sort_more() {
    const auto from = order_.begin() + std::ptrdiff_t(sorted_);
    sorted_ = std::min(std::max<size_t>(64, 4 * sorted_), order_.size());
    std::partial_sort(from, order_.begin() + std::ptrdiff_t(sorted_), order_.end(), [&](int32_t a, int32_t b) {
      const double x = logits_[size_t(a)], y = logits_[size_t(b)];
      return x != y ? x > y : a < b;
    });
  }
  std::span<const double> logits_;
  std::vector<int32_t> order_;
  size_t sorted_ = 0;
};

}  // namespace

int32_t sample_token(std::span<const double> logits, const Sampling& how, uint64_t index) {
  const auto most = std::max_element(logits.begin(), logits.end());  // the first of equals
  if (!std::isfinite(*most) || std::any_of(logits.begin(), logits.end(), [](double x) { return std::isnan(x); }))
    throw NumericsError("the model's logits are not numbers: are its weights finite?");
  if (how.temperature == 0) return int32_t(most - logits.begin());
  LikeliestFirst order(logits);
  const auto weight = [&](size_t token) { return std::exp((logits[token] - *most) / how.temperature); };
  const size_t k = how.top_k > 0 ? std::min(size_t(how.top_k), logits.size()) : logits.size();
  double held = 0;
  for (size_t i = 0; i < k; ++i) held += weight(k < logits.size() ? size_t(order[i]) : i);
  size_t kept = k;
  if (how.top_p < 1) {
    const double wanted = how.top_p * held;
    for (held = 0, kept = 0; kept < k && (kept == 0 || held < wanted); ++kept) held += weight(size_t(order[kept]));
  }
  double left = random_uniform(rng_key(how.seed, "sampling"), index) * held;
  for (size_t i = 0; i + 1 < kept; ++i) {
    left -= weight(size_t(order[i]));
    if (left < 0) return order[i];
  }
  return order[kept - 1];
}

std::vector<int32_t> choose_once(const ProcessMesh& mesh, bool has_head, size_t n,
                                 const std::function<int32_t(size_t)>& choose) {
  std::vector<double> chosen(n, 0.0);  // exact: far below 2^53; zeros on all other ranks
  const bool here = speaks_for_texts(mesh, has_head);
  for (size_t i = 0; here && i < n; ++i) chosen[i] = choose(i);
  wait_sum_over_sharers(mesh, {chosen.data(), DType::f64, {int64_t(n)}});
  return {chosen.begin(), chosen.end()};
}

}  // namespace weft
