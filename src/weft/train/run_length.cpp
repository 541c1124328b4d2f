#include "weft/train/run_length.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"
#include "weft/plan/run_plan.h"
#include "weft/recipe/recipe_keys.h"
#include "weft/recipe/recipe_phases.h"

namespace weft {
namespace {

constexpr double kMany = 10;  // epochs: far more than the few that are nearly as good as new text (Muennighoff 2023)

// The step at which the learning rate has come to its end; 0: not known, or there is none.
int64_t decay_end(const Recipe& r) {
  if (r.optimizer.lr_decay_style == LrSchedule::Style::constant) return 0;
  return r.optimizer.lr_decay_iters > 0 ? r.optimizer.lr_decay_iters : r.train.train_iters;
}
bool decays_to_the_end(const Recipe& r) {
  return r.optimizer.lr_decay_iters == 0 || r.optimizer.lr_decay_iters == r.train.train_iters;
}

// The learning rate of a step behind so many updates.
double rate_of(const Recipe& recipe, int64_t step, int64_t updates) {
  const std::vector<PhaseSpan> spans = phase_spans(recipe);
  const auto at = std::find_if(spans.begin(), spans.end(), [&](const PhaseSpan& span) { return step < span.end_step; });
  const PhaseSpan& span = at == spans.end() ? spans.back() : *at;
  return lr_schedule_of(span.recipe).at(span.lr_first_step > 0 ? step - span.lr_first_step : updates);
}

std::string note_of(const TrainingSamples& train, double drawn, const std::string& steps) {
  const TrainingSamples::Walked most = train.walked_most(drawn);
  const std::string what =
      fmt::format("{} see {}{} samples {:.3g} times", steps,
                  most.is_all ? "its " : fmt::format("those of {}, ", most.file), most.samples, most.times);
  if (most.times <= kMany) return "the run's " + what;
  return fmt::format("warning: the run's {}: it will know them by heart; more text, or fewer steps (train.epochs)",
                     what);
}

}  // namespace

Recipe with_known_length(Recipe recipe, const TrainingSamples& train) {
  if (recipe.train.epochs == 0) return recipe;
  const double samples = recipe.train.epochs * double(train.samples_per_epoch());
  const double steps = std::max(1.0, std::ceil(samples / double(recipe.train.global_batch_size)));
  const std::string source = fmt::format("train.epochs = {}, which is {} steps", recipe.train.epochs, steps);
  if (steps > kMostCount) throw ConfigError(fmt::format("{}: more than {}", source, int64_t(kMostCount)));
  recipe.train.train_iters = int64_t(steps);
  recipe.train.epochs = 0;
  return parse_recipe(to_toml(recipe), source, {});  // judges what the number of steps must fit to
}

std::string epochs_note(const Recipe& recipe, const TrainingSamples& train) {
  const double drawn = double(recipe.train.train_iters) * double(recipe.train.global_batch_size);
  return note_of(train, drawn,
                 fmt::format("{} steps of {} samples", recipe.train.train_iters, recipe.train.global_batch_size));
}

std::string epochs_note(const TrainingSamples& train, int64_t samples) {
  return note_of(train, double(samples), fmt::format("steps with this data draw {} samples, and", samples));
}

std::string short_for_spikes_note(const Recipe& recipe) {
  const PhaseSpan* longest = nullptr;
  const auto steps_of = [](const PhaseSpan& span) { return span.end_step - span.first_step; };
  const std::vector<PhaseSpan> spans = phase_spans(recipe);
  for (const PhaseSpan& span : spans) {
    if (span.recipe.train.on_spike == SpikeAction::none) continue;
    if (steps_of(span) > (span.recipe.train.spike_window + 1) / 2) return "";  // SpikeRule::find
    if (longest == nullptr || steps_of(span) > steps_of(*longest)) longest = &span;
  }
  if (longest == nullptr) return "";
  const int64_t steps = steps_of(*longest);
  const Recipe::Train& t = longest->recipe.train;
  return fmt::format(
      "warning: train.on_spike = \"{}\" judges no step: there must be {} steps before it, half of train.spike_window = "
      "{}, and {} has {}; {}",
      t.on_spike, (t.spike_window + 1) / 2, t.spike_window, spans.size() > 1 ? "the longest phase" : "the run", steps,
      steps > 1 ? fmt::format("train.spike_window = {} judges the later half", steps) : "it needs more steps");
}

void allow_another_length(Recipe& there, const Recipe& here) {
  const bool same_end = decay_end(there) == decay_end(here),
             follow = decays_to_the_end(there) && decays_to_the_end(here);
  if (same_end || follow) there.optimizer.lr_decay_iters = here.optimizer.lr_decay_iters;
  there.train.train_iters = here.train.train_iters;
  there.train.epochs = here.train.epochs;
}

std::string length_note(const Recipe& there, const Recipe& here, int64_t step, int64_t updates) {
  if (there.train.train_iters == here.train.train_iters) return "";
  const std::string steps =
      fmt::format("train.train_iters is {}, it was {}", here.train.train_iters, there.train.train_iters);
  if (has_phases(there) || has_phases(here))
    return fmt::format("{}; the learning rate is {:.4g} in the next step, and would have been {:.4g}", steps,
                       rate_of(here, step, updates), rate_of(there, step, updates));
  const LrSchedule before = lr_schedule_of(there), now = lr_schedule_of(here);
  if (decay_end(there) == decay_end(here)) return steps + "; the learning rate goes on as it would have";
  return fmt::format(
      "{}; the learning rate now comes to its end at step {}, not {}: it is {:.4g} in the next step, and would have "
      "been {:.4g} (optimizer.lr_decay_iters={} keeps that)",
      steps, now.decay_steps, before.decay_steps, now.at(updates), before.at(updates), before.decay_steps);
}

void require_steps_left(const Recipe& recipe, int64_t done, const std::filesystem::path& checkpoint) {
  if (recipe.train.train_iters == 0 || done <= recipe.train.train_iters) return;
  throw ConfigError(
      fmt::format("train.train_iters = {}, but {} is of step {}; give the run at least as many, or begin at an older "
                  "checkpoint in another folder: weft train --from CHECKPOINT RECIPE run.dir=NEW",
                  recipe.train.train_iters, checkpoint.string(), done));
}

}  // namespace weft
