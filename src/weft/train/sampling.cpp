#include "weft/train/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/base/rng.h"
#include "weft/sharding/text_ranks.h"

namespace weft {

int32_t sample_token(std::span<const double> logits, const Sampling& how, uint64_t index) {
  for (const double x : logits)
    if (std::isnan(x)) throw NumericsError("the model's logits are not numbers: are its weights finite?");
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) {
    return logits[size_t(a)] != logits[size_t(b)] ? logits[size_t(a)] > logits[size_t(b)] : a < b;
  };
  if (how.temperature == 0) return *std::min_element(order.begin(), order.end(), likelier);
  const size_t k = how.top_k > 0 ? std::min(size_t(how.top_k), order.size()) : order.size();
  std::partial_sort(order.begin(), order.begin() + std::ptrdiff_t(k), order.end(), likelier);
  order.resize(k);
  std::vector<double> weight(k);
  const double most = logits[size_t(order[0])];
  for (size_t i = 0; i < k; ++i) weight[i] = std::exp((logits[size_t(order[i])] - most) / how.temperature);
  const double all = std::accumulate(weight.begin(), weight.end(), 0.0);
  double held = 0;
  size_t kept = 0;
  while (kept < k && (kept == 0 || held < how.top_p * all)) held += weight[kept++];
  double left = random_uniform(rng_key(how.seed, "sampling"), index) * held;
  for (size_t i = 0; i < kept; ++i) {
    left -= weight[i];
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
