// Phases of a run (docs/tune/phases.md): from a step on, some keys have other values. They come from the recipe's
// [[phase]] tables and from train.rampup_batch_size, by which the batch grows in steps.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/error.h"
#include "weft/recipe/recipe.h"

namespace weft {

// Whether a [[phase]] may have a key; and which may, for messages.
bool is_phase_key(std::string_view key);
std::string phase_keys_text();

bool has_phases(const Recipe& recipe);

// A head that the model has with some objectives and not with others: logits of the next token, the score of a reward
// model, the values of PPO.
enum class ModelHead : uint8_t { text, score, values };
inline constexpr size_t kModelHeads = 3;
bool has_head(ObjectiveKind objective, ModelHead head);
// Whether the model of one recipe has other heads than that of another.
bool changes_heads(const Recipe& before, const Recipe& now);

// Consecutive steps that are alike.
struct PhaseSpan {
  int phase = 0;                         // 0: before all [[phase]] tables; else which of them it is, from 1
  int64_t first_step = 0, end_step = 0;  // counted from 0; the last one's end is train.train_iters
  // The step from which the learning rate's schedule counts; 0: it is that of the whole run.
  int64_t lr_first_step = 0;
  double lr_factor = 1;  // by which optimizer.lr_scaling has multiplied the learning rate that was stated
  // By which "sqrt_adam" has multiplied 1 - beta of Adam's averages; and how many steps of this span would have made
  // them as old as they are where it begins. Without that rule: 1, and first_step.
  double decay_factor = 1;
  int64_t averaged_steps = 0;
  // [ModelHead] the same of a head that a phase began anew; none: it is as old as the run, or is not there.
  std::array<std::optional<int64_t>, kModelHeads> heads_averaged_steps = {};
  // From this step on the weights are the reference of the objective, and objective.reference is the checkpoint that
  // the run keeps of them; 0: they are not, and the run begins with its reference, or names it.
  int64_t own_reference = 0;
  // The step from which the layout is as it is here, by the last phase that has said another one; 0: since the first.
  int64_t layout_from = 0;
  Recipe recipe;  // with the values of these steps, without phases
};
// All of a run, in the order of the steps; of a recipe without phases one, which is the recipe. The recipe has been
// judged (parse_recipe).
std::vector<PhaseSpan> phase_spans(const Recipe& recipe);

// Layouts that phases change: of [parallel], and run.ranks.

bool has_layouts(const Recipe& recipe);
// Whether a phase that begins with this step has another layout than the steps before it.
bool changes_layout_at(const Recipe& recipe, int64_t step);
// The recipe of a process that goes on behind so many steps: its layout is that of the next one (Recipe::layout_now).
Recipe in_layout_at(const Recipe& recipe, int64_t steps_done);
// The step from which a process of this recipe has its layout.
int64_t layout_from(const Recipe& recipe);
// Without that: as it was read.
Recipe as_stated(const Recipe& recipe);
// What a process that begins with `next` has of the steps before it, none of which it trains: their checkpoint, their
// data and their evaluation, on its own layout.
Recipe on_layout_of(const Recipe& before, const Recipe& next);

// "phase 1, steps 100 to 199", with which the following begins and messages about its data do.
std::string name_of(const PhaseSpan& span);
// "phase 1, steps 100 to 199: 64 samples of 1024 tokens, 4 at a time; learning rate 0.0006 at most (0.0003 x 2, ...)"
std::string to_string(const PhaseSpan& span);

// Calls f(); an error of a recipe or a file gets the span's name before its message, unless the run has no other.
template <class F>
auto in_phase(const PhaseSpan& span, bool is_only, const F& f) {
  try {
    return f();
  } catch (const ConfigError& e) {
    if (is_only) throw;
    throw ConfigError(fmt::format("{}: {}", name_of(span), e.what()));
  } catch (const FileError& e) {
    if (is_only) throw;
    throw FileError(fmt::format("{}: {}", name_of(span), e.what()));
  }
}

// What is wrong with the phases themselves: their order, keys that do not go with the recipe. [place of the phase in
// Recipe::phases, or -1 of the recipe] and the problem. Where nothing is, values of each span may still not fit each
// other (conflicts).
struct PhaseProblem {
  int phase;
  std::string text;
};
std::vector<PhaseProblem> phase_problems(const Recipe& recipe);

// The value of optimizer.lr_scaling, where nothing makes the batch grow.
bool has_idle_lr_scaling(const Recipe& recipe);

// The recipe of the first steps, without phases: for commands that look at single steps.
Recipe without_phases(const Recipe& recipe);

// How the phases differ that a run has begun which has done so many steps: one line for each. Later ones may change.
std::vector<std::string> phase_differences(const Recipe& there, const Recipe& here, int64_t steps_done);

}  // namespace weft
