#include "weft/page/norm_map.h"

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

NormMap::NormMap(const std::filesystem::path& run, const MapKind& kind)
    : kind_(kind), file_({.file = run / kind.file, .longest_line = 4 << 20}) {}

void NormMap::poll(int64_t most_bytes) {
  file_.poll({.anew =
                  [&] {
                    ++generation_;
                    norms_.clear();
                    stretches_.clear();
                    stretch_records_ = 1;
                  },
              .line = [&](std::string_view line, int64_t) { take(line); },
              .too_long = [] {}},
             most_bytes);
}

void NormMap::take(std::string_view text) {
  const auto line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return;
  const auto step_at = line.find("step"), norms_at = line.find(kind_.key);
  if (step_at == line.end() || !step_at->is_number_integer() || norms_at == line.end() || !norms_at->is_object())
    return;
  const auto step = step_at->get<int64_t>();
  if (step < 0 || step > kMostSteps) return;
  const int64_t at = stretch_of(step);
  if (at < 0) return;
  // Where a step ran twice, the later line counts if it has a stretch of its own.
  const bool replaces = stretch_records_ == 1 && stretches_[size_t(at)].first == step;
  for (const auto& [name, value] : norms_at->items()) {
    auto of = norms_.find(name);
    if (of == norms_.end()) {
      if (name.size() > kLongestKey || norms_.size() >= kMostMapNames) continue;
      of = norms_.emplace(name, std::vector<double>()).first;
    }
    if (of->second.size() <= size_t(at)) of->second.resize(size_t(at) + 1, kNoNorm);
    const double norm = value.is_number() ? value.get<double>() : std::nan("");
    double& kept = of->second[size_t(at)];
    kept = replaces ? norm : larger(kept, norm);
    if (!std::isfinite(kept)) kept = std::nan("");
  }
}

int64_t NormMap::stretch_of(int64_t step) {
  if (!stretches_.empty() && step <= stretches_.back().last) {
    const auto behind = std::upper_bound(stretches_.begin(), stretches_.end(), step,
                                         [](int64_t s, const Stretch& one) { return s < one.first; });
    if (behind == stretches_.begin()) return -1;
    Stretch& stretch = *std::prev(behind);
    stretch.last = std::max(stretch.last, step);
    return std::prev(behind) - stretches_.begin();
  }
  if (stretches_.empty() || stretches_.back().records == stretch_records_) {
    if (stretches_.size() == kMostStretches) halve();
    stretches_.push_back({.first = step});
  }
  stretches_.back().last = step;
  ++stretches_.back().records;
  return int64_t(stretches_.size()) - 1;
}

// Two stretches each, of which there are an even number, become one.
void NormMap::halve() {
  stretch_records_ *= 2;
  for (size_t i = 0; 2 * i < stretches_.size(); ++i) {
    const Stretch &a = stretches_[2 * i], &b = stretches_[2 * i + 1];
    stretches_[i] = {.first = a.first, .last = b.last, .records = a.records + b.records};
  }
  stretches_.resize(stretches_.size() / 2);
  for (auto& [name, all] : norms_) {
    for (size_t i = 0; 2 * i < all.size(); ++i)
      all[i] = larger(all[2 * i], 2 * i + 1 < all.size() ? all[2 * i + 1] : kNoNorm);
    all.resize((all.size() + 1) / 2);
  }
}

NormMap::Columns NormMap::columns(int64_t from, int64_t to, size_t most) const {
  const auto begin_at =
      std::partition_point(stretches_.begin(), stretches_.end(), [&](const Stretch& s) { return s.last < from; });
  const auto end_at = std::partition_point(begin_at, stretches_.end(), [&](const Stretch& s) { return s.first <= to; });
  const auto begin = size_t(begin_at - stretches_.begin()), count = size_t(end_at - begin_at);
  Columns out;
  if (norms_.empty() || count == 0) return out;
  const size_t columns = std::min({count, most, kMostMapColumns});
  const auto first_of = [&](size_t column) { return begin + count * column / columns; };
  for (size_t c = 0; c < columns; ++c) {
    out.steps.push_back(std::max(from, stretches_[first_of(c)].first));
    out.ends.push_back(std::min(to, stretches_[first_of(c + 1) - 1].last));
  }
  for (const auto& [name, all] : norms_) {
    out.names.push_back(name);
    std::vector<double>& row = out.values.emplace_back();
    for (size_t c = 0; c < columns; ++c) {
      double most_of_all = kNoNorm;
      for (size_t i = first_of(c); i < first_of(c + 1) && i < all.size(); ++i)
        most_of_all = larger(most_of_all, all[i]);
      row.push_back(most_of_all < 0 ? std::numeric_limits<double>::quiet_NaN() : most_of_all);
    }
  }
  return out;
}

}  // namespace weft
