#include "weft/page/gradient_map.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "weft/page/record_numbers.h"

namespace weft {
namespace {

// 1,024 stretches of at most 2,000 tensors: 16 MB.
constexpr size_t kMostStretches = 1024;
constexpr double kNoNorm = -1;
constexpr int64_t kMostSteps = int64_t(1) << 40;

double larger(double a, double b) { return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b); }

}  // namespace

GradientMap::GradientMap(const std::filesystem::path& run)
    : file_({.file = run / "grad_norms.jsonl", .longest_line = 4 << 20}) {}

void GradientMap::poll(int64_t most_bytes) {
  file_.poll({.anew =
                  [&] {
                    ++generation_;
                    norms_.clear();
                    first_ = last_ = 0;
                    stretch_steps_ = 1;
                  },
              .line = [&](std::string_view line, int64_t) { take(line); },
              .too_long = [] {}},
             most_bytes);
}

void GradientMap::take(std::string_view text) {
  const auto line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return;
  const auto step_at = line.find("step"), norms_at = line.find("grad_norm");
  if (step_at == line.end() || !step_at->is_number_integer() || norms_at == line.end() || !norms_at->is_object())
    return;
  const auto step = step_at->get<int64_t>();
  if (step < 0 || step > kMostSteps) return;
  if (norms_.empty()) first_ = step;
  if (step < first_) return;
  last_ = std::max(last_, step);
  while ((last_ - first_) / stretch_steps_ >= int64_t(kMostStretches)) {
    stretch_steps_ *= 2;
    for (auto& [name, all] : norms_) {
      for (size_t i = 0; 2 * i < all.size(); ++i)
        all[i] = larger(all[2 * i], 2 * i + 1 < all.size() ? all[2 * i + 1] : kNoNorm);
      all.resize((all.size() + 1) / 2);
    }
  }
  const auto stretch = size_t((step - first_) / stretch_steps_);
  for (const auto& [name, value] : norms_at->items()) {
    auto at = norms_.find(name);
    if (at == norms_.end()) {
      if (name.size() > kLongestKey || norms_.size() >= kMostMapNames) continue;
      at = norms_.emplace(name, std::vector<double>()).first;
    }
    if (at->second.size() <= stretch) at->second.resize(stretch + 1, kNoNorm);
    const double norm = value.is_number() ? value.get<double>() : std::nan("");
    double& kept = at->second[stretch];
    // Of a step that ran twice the later line counts, where it has a stretch of its own.
    kept = stretch_steps_ == 1 ? norm : larger(kept, norm);
    if (!std::isfinite(kept)) kept = std::nan("");
  }
}

GradientMap::Columns GradientMap::columns(int64_t from, int64_t to, size_t most) const {
  Columns out;
  from = std::max(from, first_);
  to = std::min(to, last_);
  if (norms_.empty() || from > to) return out;
  out.end = to;
  const auto begin = size_t((from - first_) / stretch_steps_), end = size_t((to - first_) / stretch_steps_) + 1;
  const size_t count = end - begin, columns = std::min({count, most, kMostMapColumns});
  for (size_t c = 0; c < columns; ++c)
    out.steps.push_back(std::max(from, first_ + int64_t(begin + count * c / columns) * stretch_steps_));
  for (const auto& [name, all] : norms_) {
    out.names.push_back(name);
    std::vector<double>& row = out.values.emplace_back();
    for (size_t c = 0; c < columns; ++c) {
      double most_of_all = kNoNorm;
      for (size_t i = begin + count * c / columns; i < begin + count * (c + 1) / columns && i < all.size(); ++i)
        most_of_all = larger(most_of_all, all[i]);
      row.push_back(most_of_all < 0 ? std::numeric_limits<double>::quiet_NaN() : most_of_all);
    }
  }
  return out;
}

}  // namespace weft
