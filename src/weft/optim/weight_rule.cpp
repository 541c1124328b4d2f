#include "weft/optim/weight_rule.h"

#include <cmath>

namespace weft {

std::vector<WeightRule::Found> WeightRule::look(int64_t step, const std::map<std::string, TensorChange>& tensors) {
  std::map<Found::Kind, Found> found;
  const auto add = [&](Found one) {
    Found& worst = found.try_emplace(one.kind, one).first->second;
    std::vector<std::string> all = std::move(worst.tensors);
    all.push_back(one.tensor);
    if (!(one.value <= worst.value)) worst = one;
    worst.tensors = std::move(all);
  };
  for (const auto& [name, change] : tensors) {
    const auto [at, is_new] = seen_.try_emplace(name);
    Seen& seen = at->second;
    if (is_new) seen = {.began_at_0 = change.before == 0, .is_fast = change.before == 0, .window = step / kWindow};
    if (is_new) seen.now = seen.last = {step - 1, change.before};
    if (is_fast(seen, change)) add({Found::Kind::update, name, change.ratio(), kMostRatio, change.after, step, {}});
    if (const auto least = grown_since(seen, step, change.after))
      add({Found::Kind::growth, name, change.after / least->norm, kMostGrowth, change.after, least->step, {}});
  }
  std::vector<Found> all;
  for (auto& [kind, one] : found) all.push_back(std::move(one));
  return all;
}

bool WeightRule::is_fast(Seen& seen, const TensorChange& change) {
  if (change.before == 0) return false;  // there is no ratio
  const bool was = seen.is_fast;
  seen.is_fast = !(change.ratio() <= kMostRatio);  // or it is no number
  return seen.is_fast && !was;
}

std::optional<WeightRule::Least> WeightRule::grown_since(Seen& seen, int64_t step, double norm) {
  if (seen.began_at_0 || !std::isfinite(norm)) return {};
  if (const int64_t window = step / kWindow; window != seen.window) {
    seen.last = window == seen.window + 1 ? seen.now : Least{step, norm};
    seen.now = {step, norm};
    seen.window = window;
  }
  const Least least = seen.now.norm < seen.last.norm ? seen.now : seen.last;
  if (norm < seen.now.norm) seen.now = {step, norm};
  if (!(norm > kMostGrowth * least.norm)) return {};
  seen.now = seen.last = {step, norm};
  return least;
}

}  // namespace weft
