#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "weft/forecast/score.h"

namespace weft {
namespace {

constexpr double kMostError = 0.7;   // a row counts no more than this: a forecast twice too high or low
constexpr double kSpread = 2;        // of what is off within groups, beside what is off at all
constexpr double kPull = 0.001;      // towards the first numbers: what a change of one by a factor of e must gain
constexpr double kNear = 0.05;       // changes of numbers below it count little
constexpr double kFewRows = 6;       // programs with so many rows are pulled twice as strongly
constexpr double kFirstStep = 0.3;   // of a number, up and down
constexpr double kStepFalls = 0.65;  // from round to round
constexpr int kRounds = 6;           // of all numbers
constexpr int kWideRounds = 2;       // of them, in which wide numbers leap
constexpr double kGains[] = {0, 0.1, 0.2, 0.3};
constexpr double kOtherGapUs = 50, kOtherWaitUs = 3000;
constexpr double kWideZero = 1;                    // where a wide number leaps from that is 0
constexpr double kMemoryPull = 0.02;               // of a part of memory that is e times more or less
constexpr int kMemoryGrid = 10, kMostBaseGib = 5;  // values of the grid, up and down
constexpr double kMemorySteps = 5;                 // of them for a factor of two
constexpr size_t kFewestMemory = 3;                // rows with a measured memory, to say anything of a program's

using Rows = std::vector<const PlannedRow*>;
using Numbers = std::vector<const ProfileNumber*>;

// Rows whose forecast is the same.
struct SameRows {
  const PlannedRow* first;
  double year;
  size_t group;
  std::vector<double> log_rates;  // as measured
};

// What is to be as low as possible: how far forecasts are off, and, as users compare layouts, how far they are beside
// the others of their group (runs of one model on one machine).
class Loss {
 public:
  Loss(const Rows& rows, const ProgramProfile& base, Numbers numbers)
      : count_(double(rows.size())), base_(base), numbers_(std::move(numbers)) {
    std::map<std::tuple<const RunWork*, double, std::string>, size_t> known;
    std::map<std::string, size_t> groups;
    for (const PlannedRow* row : rows) {
      const double year = row->row.release_year();
      // A row without a group is one.
      const std::string name = row->row.group.empty() ? "row " + row->row.id : "group " + row->row.group;
      const auto [at, is_new] = known.try_emplace({row->work.get(), year, name}, rows_.size());
      const size_t group = groups.try_emplace(name, groups.size()).first->second;
      if (is_new) rows_.push_back({row, year, group, {}});
      rows_[at->second].log_rates.push_back(std::log(*row->row.measured_rate()));
    }
    groups_ = groups.size();
  }
  double operator()(const ProgramProfile& profile) const {
    double sum = 0, pull = 0;
    std::vector<Group> groups(groups_);
    std::map<double, ProgramProfile> released;
    for (const SameRows& same : rows_) released.try_emplace(same.year, at_release(profile, same.year));
    for (const SameRows& same : rows_) {
      const PlannedRow& row = *same.first;
      const StepForecast step =
          price_step(*row.work, released.at(same.year), {.simulated = false, .factor = row.bubble_factor});
      const double rate = std::log(row.work->tokens / step.step_s / row.work->mesh.world());
      for (const double measured : same.log_rates) {
        const double error = std::clamp(rate - measured, -kMostError, kMostError);
        sum += std::abs(error);
        groups[same.group].errors.push_back(error);
      }
    }
    for (const Group& group : groups) sum += kSpread * group.spread();
    for (const ProfileNumber* n : numbers_) {
      const double by = std::abs(std::log((profile.*n->value + kNear) / (base_.*n->value + kNear)));
      pull += n->wide ? by / 4 : by;
    }
    return sum / count_ + kPull * (1 + kFewRows / count_) * pull;
  }

 private:
  struct Group {
    std::vector<double> errors;
    // The sum of what each is away from their mean.
    double spread() const {
      const double mean =
          std::accumulate(errors.begin(), errors.end(), 0.0) / double(std::max<size_t>(1, errors.size()));
      double sum = 0;
      for (const double e : errors) sum += std::abs(e - mean);
      return sum;
    }
  };

  std::vector<SameRows> rows_;
  size_t groups_ = 0;
  double count_;
  const ProgramProfile& base_;
  Numbers numbers_;
};

// The values that a number is tried at.
std::vector<double> tries_of(const ProfileNumber& n, double now, double step, int round) {
  std::vector<double> tries;
  for (const double by : {-step, -step / 2, step / 2, step})
    tries.push_back(now * (1 + by) + (now < 0.05 ? 0.1 * by : 0));
  if (n.wide && round < kWideRounds)
    for (const double by : {0.25, 4.0, 16.0, 64.0}) tries.push_back((now > 0 ? now : kWideZero) * by);
  for (double& value : tries) value = std::clamp(value, n.low, n.high);
  return tries;
}

// What is found is a minimum near `from`.
ProgramProfile fit_from(const ProgramProfile& from, const Loss& loss, const Numbers& numbers) {
  ProgramProfile best = from;
  double least = loss(best), step = kFirstStep;
  for (int round = 0; round < kRounds; ++round, step *= kStepFalls)
    for (const ProfileNumber* n : numbers)
      for (const double value : tries_of(*n, best.*n->value, step, round)) {
        ProgramProfile other = best;
        other.*n->value = value;
        const double lost = loss(other);
        if (lost >= least - 1e-7) continue;
        least = lost;
        best = other;
      }
  return best;
}

// A program's gain from year to year goes with all its rates, and its gap beside each kernel and waits at collectives
// with that of its products, so that none is found by moving one number: the fit begins at several.
ProgramProfile fit(const Rows& rows, const ProgramProfile& base, const Numbers& numbers) {
  const Loss loss(rows, base, numbers);
  std::optional<ProgramProfile> best;
  const auto try_from = [&](const ProgramProfile& from) {
    const ProgramProfile found = fit_from(from, loss, numbers);
    if (!best || loss(found) < loss(*best)) best = found;
  };
  ProgramProfile from = base;
  if (base.experts) {
    for (const double gain : kGains) {
      from.gain = gain;
      try_from(from);
    }
  } else {
    try_from(from);
    const auto try_other = [&](double ProgramProfile::*number, double value) {
      if (std::none_of(numbers.begin(), numbers.end(), [&](auto* n) { return n->value == number; })) return;
      from = base;
      from.*number = value;
      try_from(from);
    };
    try_other(&ProgramProfile::gap_us, kOtherGapUs);
    try_other(&ProgramProfile::tp_wait_us, kOtherWaitUs);
  }
  return *best;
}

// The numbers of memory by the rows whose peak was measured: the three of a grid that are least off, and near 1.
void fit_memory(const Rows& rows, ProgramProfile& profile) {
  double least = std::numeric_limits<double>::infinity();
  ProgramProfile tried = profile;
  const auto try_one = [&] {
    double sum = kMemoryPull * (std::abs(std::log(tried.memory_kept)) + std::abs(std::log(tried.memory_part)));
    for (const PlannedRow* row : rows)
      sum += std::abs(std::log(peak_memory(tried, row->memory_bytes, row->kept_bytes) / double(1 << 30) /
                               *row->row.peak_memory_gib)) /
             double(rows.size());
    if (sum >= least) return;
    least = sum;
    profile = tried;
  };
  for (int kept = -kMemoryGrid; kept <= kMemoryGrid; ++kept)
    for (int part = -kMemoryGrid; part <= kMemoryGrid; ++part)
      for (int base = 0; base <= kMostBaseGib; ++base) {
        tried.memory_kept = std::exp2(kept / kMemorySteps);
        tried.memory_part = std::exp2(part / kMemorySteps);
        tried.memory_base = double(base) * double(1 << 30);
        try_one();
      }
}

// Whether a row says something of the profile.
bool is_of(const PlannedRow& row, const ProgramProfile& profile, const Profiles& base) {
  if (!row.reason.empty() || !row.work || (row.row.moe_experts > 0) != profile.experts) return false;
  return profile.frameworks.empty() || base.of(row.row.framework, profile.experts).name == profile.name;
}

// Facts of a program, and what its profile says is one.
bool is_fixed(const ProgramProfile& profile, const ProfileNumber& n) {
  const bool is_fitted = n.of_time || std::string_view(n.name).substr(0, 7) == "memory_";
  if (!is_fitted) return true;
  return std::find(profile.fixed.begin(), profile.fixed.end(), n.name) != profile.fixed.end();
}

// `profile` with the numbers of another but for those that are fixed.
ProgramProfile with_numbers(const ProgramProfile& profile, const ProgramProfile& numbers) {
  ProgramProfile with = profile;
  for (const ProfileNumber& n : profile_numbers())
    if (!is_fixed(profile, n)) with.*n.value = numbers.*n.value;
  return with;
}

// Where the numbers of a program begin: models with experts where the program's dense ones end, all others where those
// of any program do. What is fixed stays as `base` has it.
ProgramProfile start_of(const ProgramProfile& base, const std::vector<ProgramProfile>& fitted) {
  const ProgramProfile *any = nullptr, *own = nullptr;
  for (const ProgramProfile& p : fitted) {
    if (p.experts) continue;
    if (p.frameworks.empty()) any = &p;
    if (p.frameworks == base.frameworks) own = &p;
  }
  const ProgramProfile* like = base.experts && own != nullptr ? own : any;
  if (like == nullptr || (base.frameworks.empty() && !base.experts)) return base;
  return with_numbers(base, *like);
}

Numbers numbers_of(const ProgramProfile& profile) {
  Numbers numbers;
  for (const ProfileNumber& n : profile_numbers())
    if (n.of_time && (!profile.experts || n.experts) && !is_fixed(profile, n)) numbers.push_back(&n);
  return numbers;
}

// Fits the profiles that `is_wanted` names, and those that they begin with.
Profiles fit_some(const std::vector<PlannedRow>& rows, const Profiles& base,
                  const std::function<bool(const ProgramProfile&)>& is_wanted) {
  // First those of any program, by all rows; then each of the others, beginning with these; those with experts last.
  std::vector<ProgramProfile> all = base.all();
  for (int pass = 0; pass < 4; ++pass)
    for (ProgramProfile& profile : all) {
      if (profile.frameworks.empty() != (pass % 2 == 0) || profile.experts != (pass >= 2) || !is_wanted(profile))
        continue;
      Rows mine, with_memory;
      for (const PlannedRow& row : rows) {
        if (!is_of(row, profile, base)) continue;
        if (row.row.measured_rate()) mine.push_back(&row);
        if (row.row.peak_memory_gib && row.row.outcome != "OOM") with_memory.push_back(&row);
      }
      if (mine.empty() && with_memory.empty()) continue;
      profile = start_of(profile, all);
      if (!mine.empty()) profile = fit(mine, profile, numbers_of(profile));
      if (with_memory.size() >= kFewestMemory) fit_memory(with_memory, profile);
    }
  return Profiles(std::move(all));
}

// `base` without the programs that have no row, and without all numbers that may have been fitted to rows.
Profiles known_by(const std::vector<PlannedRow>& rows, const Profiles& base) {
  std::vector<ProgramProfile> known;
  for (const ProgramProfile& profile : base.all())
    if (profile.frameworks.empty() ||
        std::any_of(rows.begin(), rows.end(), [&](const PlannedRow& row) { return is_of(row, profile, base); }))
      known.push_back(with_numbers(profile, ProgramProfile()));
  return Profiles(std::move(known));
}

}  // namespace

Profiles fit_profiles(const std::vector<PlannedRow>& rows, const Profiles& base) {
  return fit_some(rows, base, [](const ProgramProfile&) { return true; });
}

std::vector<RowForecast> cross_validate(const std::vector<PlannedRow>& rows, const Profiles& base,
                                        const std::function<std::string(const RunRow&)>& fold_of) {
  std::map<std::string, std::vector<size_t>> folds;
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].reason.empty() && rows[i].work) folds[fold_of(rows[i].row)].push_back(i);
  std::vector<RowForecast> forecasts(rows.size());
  for (const auto& [name, left_out] : folds) {
    std::vector<PlannedRow> others;
    for (const PlannedRow& row : rows)
      if (fold_of(row.row) != name) others.push_back(row);
    std::set<std::string> needed;  // profiles of the rows that are left out, and those that they begin with
    for (const size_t i : left_out) {
      const bool experts = rows[i].row.moe_experts > 0;
      for (const bool e : {false, experts}) {
        needed.insert(base.of(rows[i].row.framework, e).name);
        needed.insert(base.of("", e).name);
      }
    }
    const Profiles fitted =
        fit_some(others, known_by(others, base), [&](const ProgramProfile& p) { return needed.count(p.name) > 0; });
    for (const size_t i : left_out) forecasts[i] = forecast_of(rows[i], fitted);
  }
  return forecasts;
}

}  // namespace weft
