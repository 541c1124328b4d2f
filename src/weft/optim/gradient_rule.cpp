#include "weft/optim/gradient_rule.h"

#include <algorithm>
#include <cmath>

#include "weft/base/ascii.h"

namespace weft {
namespace {

// "layers.*.down" of "layers.3.down".
std::string kind_of_tensor(const std::string& name) {
  std::string kind;
  for (const char c : name)
    if (!is_ascii_digit(c))
      kind += c;
    else if (kind.empty() || kind.back() != '*')
      kind += '*';
  return kind;
}

std::map<std::string, double> medians_by_kind(const std::map<std::string, double>& norms) {
  std::map<std::string, std::vector<double>> of_kind;
  for (const auto& [name, norm] : norms) of_kind[kind_of_tensor(name)].push_back(norm);
  std::map<std::string, double> medians;
  for (auto& [kind, all] : of_kind) {
    if (all.size() < GradientRule::kFewest) continue;
    std::nth_element(all.begin(), all.begin() + int64_t(all.size() / 2), all.end());
    medians[kind] = all[all.size() / 2];
  }
  return medians;
}

double norm_of_all(const std::map<std::string, double>& norms) {
  double squares = 0;
  for (const auto& [name, norm] : norms) squares += norm * norm;
  return std::sqrt(squares);
}

}  // namespace

std::optional<GradientRule::Found> GradientRule::look(int64_t step, const std::map<std::string, double>& norms) {
  const double all = norm_of_all(norms);
  if (!std::isfinite(all) || all == 0) return {};
  std::map<std::string, double> medians = medians_by_kind(norms);
  std::optional<Found> found;
  std::vector<std::string> tensors;
  for (const auto& [name, norm] : norms) {
    Seen& seen = seen_[name];
    const double was = seen.best * all, others = medians[kind_of_tensor(name)];
    if (norm < kLeast * std::max(was, others)) {
      if (seen.num_low++ == 0) seen.from_step = step;
      if (seen.num_low != kSteps) continue;
      tensors.push_back(name);
      const Found one{name, norm, std::max(was, others), others > was, seen.from_step, {}};
      if (!found || one.fraction() < found->fraction()) found = one;
      continue;
    }
    seen.num_low = 0;
    constexpr double kNothing = 1e-300;  // a mean of logarithms: one step that stands out moves it little
    seen.log_sum += std::log(std::max(norm / all, kNothing));
    if (++seen.num_in_window < kWindow) continue;
    const double mean = std::exp(seen.log_sum / double(kWindow));
    if (mean > 2 * kNothing) seen.best = std::max(seen.best, mean);  // else it was zero throughout
    seen.log_sum = 0;
    seen.num_in_window = 0;
  }
  if (found) found->tensors = std::move(tensors);
  return found;
}

}  // namespace weft
