#include <algorithm>
#include <cmath>
#include <map>

#include "weft/forecast/score.h"

namespace weft {
namespace {

constexpr double kMostError = 0.7;   // a row counts no more than this: a forecast twice too high or low
constexpr double kPull = 0.02;       // towards the first numbers: what a mean change by a factor of e must gain
constexpr double kFewRows = 6;       // programs with so many rows are pulled twice as strongly
constexpr double kFirstStep = 0.3;   // of a number, up and down
constexpr double kStepFalls = 0.65;  // from round to round
constexpr int kRounds = 6;

using Rows = std::vector<const PlannedRow*>;

// What is to be as low as possible.
class Loss {
 public:
  Loss(const Rows& rows, const ProgramProfile& base, std::vector<const ProfileNumber*> numbers)
      : rows_(rows), base_(base), numbers_(std::move(numbers)) {}
  double operator()(const ProgramProfile& profile) const {
    double sum = 0, pull = 0;
    for (const PlannedRow* row : rows_) {
      const StepForecast step = price_step(*row->work, at_release(profile, row->row.release_year()),
                                           {.simulated = false, .factor = row->bubble_factor});
      const double rate = row->work->tokens / step.step_s / row->work->mesh.world();
      sum += std::min(kMostError, std::abs(std::log(rate / *row->row.measured_rate())));
    }
    for (const ProfileNumber* n : numbers_)
      pull += std::abs(std::log((profile.*n->value + 0.01) / (base_.*n->value + 0.01)));
    const auto count = double(rows_.size());
    return sum / count + kPull * (1 + kFewRows / count) * pull / double(numbers_.size());
  }

 private:
  const Rows& rows_;
  const ProgramProfile& base_;
  std::vector<const ProfileNumber*> numbers_;
};

ProgramProfile fit(const Rows& rows, const ProgramProfile& base) {
  std::vector<const ProfileNumber*> numbers;
  for (const ProfileNumber& n : profile_numbers())
    if (n.of_time) numbers.push_back(&n);
  const Loss loss(rows, base, numbers);
  ProgramProfile best = base;
  double least = loss(best), step = kFirstStep;
  for (int round = 0; round < kRounds; ++round, step *= kStepFalls) {
    for (const ProfileNumber* n : numbers)
      for (const double by : {-step, -step / 2, step / 2, step}) {
        ProgramProfile other = best;
        const double now = best.*n->value;
        other.*n->value = std::clamp(now * (1 + by) + (now < 0.05 ? 0.1 * by : 0), n->low, n->high);
        const double lost = loss(other);
        if (lost < least - 1e-7) {
          least = lost;
          best = other;
        }
      }
  }
  return best;
}

// Memory as a part of what is planned, where it was measured; what lies beside it is kept.
void fit_memory(const Rows& rows, ProgramProfile& profile) {
  std::vector<double> parts;
  for (const PlannedRow* row : rows)
    if (row->row.peak_memory_gib && row->row.outcome != "OOM")
      parts.push_back((*row->row.peak_memory_gib * double(1 << 30) - profile.memory_base) / row->memory_bytes);
  if (parts.size() < 3) return;
  std::sort(parts.begin(), parts.end());
  profile.memory_part = std::clamp(parts[parts.size() / 2], 0.2, 5.0);
}

bool can_be_fitted(const PlannedRow& row) { return row.reason.empty() && row.work && row.row.measured_rate(); }

}  // namespace

Profiles fit_profiles(const std::vector<PlannedRow>& rows, const Profiles& base) {
  // First those of any program, by all rows; then each of the others, beginning with these.
  std::vector<ProgramProfile> all = base.all();
  std::map<bool, const ProgramProfile*> any;
  for (int pass = 0; pass < 2; ++pass) {
    for (ProgramProfile& profile : all) {
      if (profile.frameworks.empty() != (pass == 0)) continue;
      Rows mine;
      for (const PlannedRow& row : rows)
        if (can_be_fitted(row) && (row.row.moe_experts > 0) == profile.experts &&
            (pass == 0 || base.of(row.row.framework, profile.experts).name == profile.name))
          mine.push_back(&row);
      if (mine.empty()) continue;
      ProgramProfile from = profile;
      if (pass == 1 && any.count(profile.experts)) {
        from = *any[profile.experts];
        from.name = profile.name;
        from.frameworks = profile.frameworks;
        from.memory_base = profile.memory_base;
      }
      profile = fit(mine, from);
      fit_memory(mine, profile);
      if (pass == 0) any[profile.experts] = &profile;
    }
  }
  return Profiles(std::move(all));
}

}  // namespace weft
