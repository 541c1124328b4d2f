#include "weft/apps/fleet_layout.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "weft/base/error.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/forecast.h"
#include "weft/forecast/layout_search.h"
#include "weft/forecast/layout_space.h"
#include "weft/plan/layout.h"
#include "weft/recipe/recipe_keys.h"
#include "weft/recipe/recipe_phases.h"

namespace weft {
namespace {

std::vector<int64_t> divisors_of(int64_t n) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) all.push_back(d);
  return all;
}

bool may_change(const Recipe& recipe, const char* what) {
  const auto& all = recipe.fleet.may_change;
  return std::find(all.begin(), all.end(), what) != all.end();
}

struct Candidate {
  Recipe recipe;
  double speed = 0;  // by the rule of thumb
  int changes = 0;   // settings, but for dp
};

double thumb_of(const Recipe& r) {
  const double filled = double(num_micro_batches_of(r));
  const double pipeline = filled / (filled + double(r.parallel.pp) - 1);
  const double again = r.parallel.recompute == RecomputeKind::full        ? 0.75
                       : r.parallel.recompute == RecomputeKind::selective ? 0.97
                                                                          : 1;
  return double(mesh_sizes_of(r).world()) * pipeline * again;
}

// Whether the recipe can be so, apart from memory: as if it had been read.
bool can_be(const Recipe& recipe) {
  if (!conflicts(recipe).empty()) return false;  // soon seen
  try {
    check_supported(parse_recipe(to_toml(recipe), "layout", {}));
    return true;
  } catch (const ConfigError&) { return false; }
}

// Goes through the settings that may change: each level sets one and calls the next.
class Layouts {
 public:
  Layouts(const Recipe& recipe, int64_t ranks) : recipe_(recipe), ranks_(ranks), base_(choice_of(recipe)) {}

  std::vector<Candidate> run() {
    now_ = base_;
    for (const int64_t tp : sizes("tp", base_.tp, ranks_))
      for (const int64_t pp : sizes("pp", base_.pp, ranks_ / tp))
        for (const int64_t cp : sizes("cp", base_.cp, ranks_ / tp / pp)) {
          now_.tp = tp, now_.pp = pp, now_.cp = cp;
          now_.dp = ranks_ / tp / pp / cp;
          if (now_.dp == base_.dp || may_change(recipe_, "dp")) with_experts();
        }
    std::stable_sort(all_.begin(), all_.end(), [](const Candidate& a, const Candidate& b) {
      return std::tuple(-a.speed, a.changes) < std::tuple(-b.speed, b.changes);
    });
    return std::move(all_);
  }

 private:
  // The sizes of an axis of which so many ranks are multiples.
  std::vector<int64_t> sizes(const char* axis, int64_t now, int64_t ranks) const {
    if (may_change(recipe_, axis)) return divisors_of(ranks);
    return ranks > 0 && ranks % now == 0 ? std::vector{now} : std::vector<int64_t>();
  }
  void with_experts() {
    for (const int64_t ep : base_.ep > 1 ? sizes("ep", base_.ep, now_.dp * now_.cp) : std::vector<int64_t>{1}) {
      now_.ep = ep;
      with_zero();
    }
  }
  void with_zero() {
    const int64_t shards = now_.dp * now_.cp;
    now_.zero_shard_size = base_.zero_shard_size > 0 && shards % base_.zero_shard_size == 0 ? base_.zero_shard_size : 0;
    const int64_t last = may_change(recipe_, "zero_stage") && shards > 1 ? 3 : base_.zero_stage;
    for (now_.zero_stage = base_.zero_stage; now_.zero_stage <= last; ++now_.zero_stage) with_recompute();
  }
  void with_recompute() {
    now_.recompute = base_.recompute;
    add();
    if (!may_change(recipe_, "recompute") || base_.recompute == RecomputeKind::budget) return;
    for (const RecomputeKind more : {RecomputeKind::selective, RecomputeKind::full}) {
      if (more <= base_.recompute) continue;
      now_.recompute = more;
      add();
    }
  }
  void add() {
    Recipe made = with_choice(recipe_, now_);
    made.train.autotune = recipe_.train.autotune;  // which a run cannot change; it makes no trials where there are none
    if (now_.dp == base_.dp) made.parallel.micro_batches = recipe_.parallel.micro_batches;
    if (now_.pp == base_.pp) made.parallel.pipeline_layout = recipe_.parallel.pipeline_layout;
    if (now_.pp == 1) made.parallel.pipeline_schedule = Recipe().parallel.pipeline_schedule;
    if (made.parallel.pipeline_schedule != recipe_.parallel.pipeline_schedule)
      made.parallel.virtual_pipeline_parallel_size = 0;
    if (!leaves_teacher(made) || !can_be(made)) return;
    const double speed = thumb_of(without_phases(made));
    all_.push_back({std::move(made), speed, changes()});
  }
  // A choice fits the axes of a teacher of its own to the ranks: those that may change.
  bool leaves_teacher(const Recipe& made) const {
    const Recipe::Parallel &now = made.parallel, &given = recipe_.parallel;
    return (now.teacher_tp == given.teacher_tp || may_change(recipe_, "tp")) &&
           (now.teacher_pp == given.teacher_pp || may_change(recipe_, "pp")) &&
           (now.teacher_cp == given.teacher_cp || may_change(recipe_, "cp")) &&
           (now.teacher_ep == given.teacher_ep || may_change(recipe_, "ep"));
  }
  int changes() const {
    const LayoutChoice &a = now_, &b = base_;
    return (a.tp != b.tp) + (a.pp != b.pp) + (a.cp != b.cp) + (a.ep != b.ep) +
           (a.zero_shard_size != b.zero_shard_size) + int(a.zero_stage - b.zero_stage) + int(a.recompute) -
           int(b.recompute);
  }

  const Recipe& recipe_;
  const int64_t ranks_;
  const LayoutChoice base_;
  LayoutChoice now_;
  std::vector<Candidate> all_;
};

// The fastest by a forecast, of those that a rule of thumb puts first.
class Forecasts {
 public:
  explicit Forecasts(const Recipe& recipe)
      : cluster_(read_cluster(recipe.fleet.cluster)), config_(read_hf_config(recipe.model.path)) {}
  std::optional<FleetLayout> fastest_of(const std::vector<Candidate>& all) const {
    std::optional<FleetLayout> best;
    double least_s = 0;
    for (const Candidate& c : all) {
      const std::optional<double> step_s = seconds_of(c.recipe);
      if (!step_s || (best && *step_s >= least_s)) continue;
      least_s = *step_s;
      best = {c.recipe, mesh_sizes_of(c.recipe).world(),
              fmt::format("the fastest of {} by the forecast for {}: {:.3g} ms a step", all.size(),
                          cluster_.device.name, 1e3 * least_s)};
    }
    return best;
  }

 private:
  // None: it cannot run there, or does not fit.
  std::optional<double> seconds_of(const Recipe& recipe) const {
    try {
      const RunForecast f = forecast_run(without_phases(recipe), config_, cluster_, Profiles::built_in());
      const double room = cluster_.device.memory_bytes - usual_reserve(cluster_);
      return double(f.memory_bytes()) <= room ? std::optional(f.step.step_s) : std::nullopt;
    } catch (const ConfigError&) { return {}; }
  }
  const ClusterSpec cluster_;
  const HfConfig config_;
};

constexpr size_t kMostForecasts = 64, kMostCounts = 16;  // of ranks, with layouts

std::optional<FleetLayout> first_that_fits(const std::vector<Candidate>& all, const DoesNotFit& does_not_fit) {
  for (const Candidate& c : all)
    if (does_not_fit(c.recipe).empty())
      return FleetLayout{c.recipe, mesh_sizes_of(c.recipe).world(), "the fastest by a rule of thumb that fits"};
  return {};
}

}  // namespace

std::vector<Recipe> layouts_for(const Recipe& recipe, int64_t ranks) {
  std::vector<Recipe> all;
  for (Candidate& c : Layouts(recipe, ranks).run()) all.push_back(std::move(c.recipe));
  return all;
}

std::optional<FleetLayout> choose_layout(const Recipe& recipe, int64_t available, const DoesNotFit& does_not_fit) {
  const int64_t own = mesh_sizes_of(recipe).world();
  const Recipe::Fleet& f = recipe.fleet;
  const int64_t least = f.min_ranks > 0 ? f.min_ranks : own;
  const int64_t most = std::min(available, f.max_ranks > 0 ? f.max_ranks : std::max(own, least));
  if (most < least) return {};
  if (most == own) return FleetLayout{recipe, own, "the recipe's"};
  const auto best_of = [&](std::vector<Candidate> all) {
    std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.speed > b.speed; });
    if (f.cluster.empty()) return first_that_fits(all, does_not_fit);
    all.resize(std::min(all.size(), kMostForecasts));
    return Forecasts(recipe).fastest_of(all);
  };
  // Half as many ranks are hardly faster than more.
  std::vector<Candidate> all;
  int64_t n = most;
  for (size_t counts = 0; n >= least && 2 * n > most && counts < kMostCounts; --n) {
    std::vector<Candidate> these = Layouts(recipe, n).run();
    counts += these.empty() ? 0 : 1;
    std::move(these.begin(), these.end(), std::back_inserter(all));
  }
  std::optional<FleetLayout> found = best_of(std::move(all));
  for (; !found && n >= least; --n) found = best_of(Layouts(recipe, n).run());
  return found;
}

std::string words_of_layout(const Recipe& recipe) { return to_string(choice_of(recipe)); }

std::vector<std::string> settings_between(const Recipe& recipe, const Recipe& layout) {
  Recipe a = recipe, b = layout;
  const auto before = recipe_keys(a), now = recipe_keys(b);
  std::vector<std::string> settings;
  for (size_t i = 0; i < now.size(); ++i)
    if (const std::string value = value_of(now[i]); value != value_of(before[i]))
      settings.push_back(now[i].name + "=" + value);
  return settings;
}

}  // namespace weft
