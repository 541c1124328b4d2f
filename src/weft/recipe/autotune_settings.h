// What train.autotune may change of a recipe while a run trains: settings that leave the mathematics as it is, and
// weights and optimizer state where they lie. docs/layouts.md#settings-that-a-run-finds-itself
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "weft/recipe/recipe.h"

namespace weft {

inline constexpr int64_t kStepsOfTrial = 5;    // with the same settings ...
inline constexpr int64_t kUnsettledSteps = 2;  // ... of which the first do not count: memory and replays are new
inline constexpr size_t kMostTrials = 8;
inline constexpr double kTrialGain = 0.02;  // of a step, by which a setting must be better than the best so far

struct TunedSettings {
  int64_t micro_batch_size = 1;
  ScheduleKind pipeline_schedule = ScheduleKind::one_f_one_b;
  CpCommType cp_comm_type = CpCommType::p2p;
  auto operator<=>(const TunedSettings&) const = default;
};
TunedSettings tuned_settings_of(const Recipe& recipe);
// The recipe of steps with these, without train.autotune. train.eval_iters counts micro-batches, and follows their
// size: the held-out data of an evaluation stays the same.
Recipe with_settings(const Recipe& recipe, const TunedSettings& settings);
// "train.micro_batch_size = 4, parallel.pipeline_schedule = \"1f1b\"": what is another than in `recipe`, or "as the
// recipe says".
std::string settings_text(const TunedSettings& settings, const Recipe& recipe);

// Which of them may change: in fast numerics the micro-batch (without moe.capacity_factor, for which it matters which
// tokens come together) and the kind of cp, which add in another order; in any the schedule of a pipeline, which
// changes no bit. Empty: none.
std::vector<std::string> settings_to_tune(const Recipe& recipe);
// Whether a run of the recipe could have come to these: where they differ from its own, that may change.
bool may_be_chosen(const Recipe& recipe, const TunedSettings& settings);

// Which settings are tried, one after the other: the recipe's own first, then each setting in turn beside the best of
// the others. A pure value: equal answers lead to equal questions.
class Tuner {
 public:
  // `recipe` must outlive it.
  explicit Tuner(const Recipe& recipe) : recipe_(recipe), best_(tuned_settings_of(recipe)) {}
  // None: all have been tried, or kMostTrials.
  std::optional<TunedSettings> next() const;
  // What next() has returned took so many seconds a step; none: it cannot run, or does not fit.
  void tell(const TunedSettings& settings, std::optional<double> seconds);
  const TunedSettings& best() const { return best_; }

 private:
  const Recipe& recipe_;
  TunedSettings best_;
  double best_s_ = 0;  // 0: not known yet
  std::set<TunedSettings> asked_ = {};
  std::set<int64_t> sizes_ = {};  // micro-batches that were asked for
  std::set<ScheduleKind> schedules_ = {};
  std::set<CpCommType> kinds_ = {};
};

}  // namespace weft
