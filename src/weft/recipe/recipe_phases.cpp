#include "weft/recipe/recipe_phases.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "weft/base/error.h"
#include "weft/base/json.h"
#include "weft/recipe/recipe_read.h"
#include "weft/recipe/requirement.h"

namespace weft {
namespace {

constexpr std::string_view kPhaseKeys[] = {"data.train",
                                           "data.weights",
                                           "data.valid",
                                           "data.pairs",
                                           "data.rollouts",
                                           "data.examples",
                                           "data.chat_template",
                                           "train.objective",
                                           "train.loss_average",
                                           "train.seq_length",
                                           "train.global_batch_size",
                                           "train.micro_batch_size",
                                           "train.rampup_batch_size",
                                           "optimizer.lr",
                                           "optimizer.min_lr",
                                           "optimizer.lr_decay_style",
                                           "optimizer.lr_warmup_iters",
                                           "optimizer.lr_decay_iters",
                                           "optimizer.lr_wsd_decay_iters",
                                           "optimizer.lr_scaling"};
constexpr std::string_view kLayoutSection = "parallel.", kLayoutKey = "run.ranks";
constexpr std::string_view kPhaseSection = "objective.";   // all of which may change too ...
constexpr std::string_view kOfTheRun = "objective.top_k";  // ... but this
constexpr int64_t kMostRampSteps = 1024;                   // of one ramp
constexpr size_t kMostPhases = 256;

bool sets(const Recipe::Phase& phase, std::string_view key) {
  return std::any_of(phase.settings.begin(), phase.settings.end(), [&](const auto& s) { return s.first == key; });
}

bool is_layout_key(std::string_view key) { return key.starts_with(kLayoutSection) || key == kLayoutKey; }

bool sets_layout(const Recipe::Phase& phase) {
  return std::any_of(phase.settings.begin(), phase.settings.end(),
                     [](const auto& s) { return is_layout_key(s.first); });
}

bool same_layout(const Recipe& a, const Recipe& b) { return a.parallel == b.parallel && a.run.ranks == b.run.ranks; }

// Whether it says anything of the learning rate's schedule, which then begins anew.
bool sets_schedule(const Recipe::Phase& phase) {
  return std::any_of(phase.settings.begin(), phase.settings.end(), [](const auto& s) {
    return s.first.starts_with("optimizer.") && s.first != "optimizer.lr_scaling";
  });
}

double scaled_by(LrScaling scaling, double ratio) {
  switch (scaling) {
    case LrScaling::none:
      return 1;
    case LrScaling::linear:
      return ratio;
    case LrScaling::sqrt:
    case LrScaling::sqrt_adam:
      break;
  }
  return std::sqrt(ratio);
}

// Which of the learning rates a phase has not stated itself.
struct Unstated {
  bool lr = true, min_lr = true;
};

// The span's batch is `ratio` times that of which its values are.
void follow_batch(PhaseSpan& span, double ratio, const Unstated& unstated) {
  auto& o = span.recipe.optimizer;
  const double factor = scaled_by(o.lr_scaling, ratio);
  if (unstated.lr) {
    span.lr_factor *= factor;
    o.lr *= factor;
    if (unstated.min_lr) o.min_lr *= factor;
  }
  if (o.lr_scaling == LrScaling::sqrt_adam) span.decay_factor *= ratio;
}

// How old an optimizer's averages are where a span begins, in its own steps.
class Age {
 public:
  // A span's averages look back 1 / decay_factor times as far as those that were stated.
  int64_t at_begin(const PhaseSpan& span) {
    age_ *= factor_ / span.decay_factor;
    factor_ = span.decay_factor;
    const auto at = int64_t(std::llround(age_));
    age_ += double(span.end_step - span.first_step);
    return at;
  }

 private:
  double age_ = 0, factor_ = 1;
};

// Of heads that are begun behind the run's first step.
void set_averages_of_heads(std::vector<PhaseSpan>& spans) {
  for (size_t h = 0; h < kModelHeads; ++h) {
    std::optional<Age> begun;
    for (size_t i = 1; i < spans.size(); ++i) {
      const auto has = [&](size_t span) { return has_head(spans[span].recipe.train.objective, ModelHead(h)); };
      if (!has(i)) begun.reset();
      if (has(i) && !has(i - 1)) begun.emplace();
      if (begun) spans[i].heads_averaged_steps[h] = begun->at_begin(spans[i]);
    }
  }
}

// From k times the batch on, a step is as much of the averages as k steps were: 1 - beta' = k (1 - beta), eps' = eps /
// sqrt(k), of the values that were stated.                                      Malladi et al. 2022, definition 5.2
void set_averages(std::vector<PhaseSpan>& spans, const Recipe::Optimizer& stated) {
  Age age;
  for (PhaseSpan& span : spans) {
    span.averaged_steps = age.at_begin(span);
    const double factor = span.decay_factor;
    if (factor == 1) continue;
    auto& o = span.recipe.optimizer;
    o.adam_beta1 = 1 - factor * (1 - stated.adam_beta1);
    o.adam_beta2 = 1 - factor * (1 - stated.adam_beta2);
    o.adam_eps = stated.adam_eps / std::sqrt(factor);
  }
  set_averages_of_heads(spans);
}

void set_value(const RecipeKey& key, const std::string& value) {
  WEFT_CHECK(read_value(key, *parse_toml("v = " + value, "phase").get("v")), "{} = {}", key.name, value);
}

void set_values(Recipe& recipe, const Recipe::Phase& phase) {
  for (const RecipeKey& key : recipe_keys(recipe))
    for (const auto& [name, value] : phase.settings)
      if (key.name == name) set_value(key, value);
}

// Another objective has none of the settings that the one before alone heeds; where it reads data of another kind, what
// was held out is of that. What no phase may change of the data, and by what cross-entropy averages, is as the run says
// it, wherever it is heeded.
void forget_unheeded(Recipe& recipe, const Recipe& run, ObjectiveKind before) {
  Recipe fallback, given = run;
  const auto keys = recipe_keys(recipe), fallbacks = recipe_keys(fallback), firsts = recipe_keys(given);
  const ObjectiveKind now = recipe.train.objective;
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool of_held_out = keys[i].name == "data.valid" && data_key_of(before) != data_key_of(now);
    const bool of_questions =
        keys[i].name == "data.tokenizer" && (!run.eval.tasks.empty() || run.train.sample_interval > 0);
    if (of_held_out || (!heeds(now, keys[i]) && !of_questions))
      set_value(keys[i], value_of(fallbacks[i]));
    else if ((keys[i].section() == "data" && !is_phase_key(keys[i].name)) || keys[i].name == "train.loss_average")
      set_value(keys[i], value_of(firsts[i]));
  }
}

// The values of a phase of `run` that begins where those of `recipe` are in force.
void begin_phase(Recipe& recipe, const Recipe::Phase& phase, const Recipe& run) {
  const ObjectiveKind before = recipe.train.objective;
  recipe.train.rampup_batch_size.clear();
  if (sets(phase, "data.train")) recipe.data.weights.clear();  // which are of other entries
  if (sets(phase, "train.objective")) {
    Recipe given = recipe;
    set_values(given, phase);
    recipe.train.objective = given.train.objective;
  }
  if (recipe.train.objective != before) forget_unheeded(recipe, run, before);
  set_values(recipe, phase);
  // No phase may say how many logits a teacher in memory gives: so many as the run says, wherever there is one.
  const bool in_memory = recipe.train.objective == ObjectiveKind::distill && recipe.objective.teacher_logits.empty();
  recipe.objective.top_k = in_memory ? run.objective.top_k : 0;
}

// The span of a phase, behind that of the phase before it.
PhaseSpan following(const PhaseSpan& before, const Recipe::Phase& phase, int number, const Recipe& run) {
  PhaseSpan span = before;
  Recipe& r = span.recipe;
  auto& o = r.optimizer;
  span.phase = number;
  span.first_step = phase.from_step;
  if (sets_schedule(phase)) {
    span.lr_first_step = phase.from_step;
    o.lr_warmup_iters = o.lr_decay_iters = o.lr_wsd_decay_iters = 0;
  }
  begin_phase(r, phase, run);
  if (sets_layout(phase) && !same_layout(before.recipe, r)) span.layout_from = phase.from_step;
  const bool begins = r.train.objective != before.recipe.train.objective && has_reference(r.train.objective);
  if (begins || sets(phase, "objective.reference") || !has_reference(r.train.objective)) span.own_reference = 0;
  if (begins && !sets(phase, "objective.reference")) {
    span.own_reference = phase.from_step;
    r.objective.reference = fmt::format("{}/checkpoints/step-{}", r.run.dir, phase.from_step);
  }
  if (sets_schedule(phase) && o.lr_decay_iters == 0) o.lr_decay_iters = r.train.train_iters - phase.from_step;
  if (sets(phase, "optimizer.lr")) span.lr_factor = 1;
  follow_batch(span, double(r.train.global_batch_size) / double(before.recipe.train.global_batch_size),
               {.lr = !sets(phase, "optimizer.lr"), .min_lr = !sets(phase, "optimizer.min_lr")});
  return span;
}

// Steps with one batch size, on the way of a ramp.
struct RampPart {
  int64_t batch, steps;
};
// As Megatron counts: after c samples of the ramp the batch has start + floor(c / (samples / increments)) increment of
// them. Empty: the recipe has no ramp.
std::vector<RampPart> ramp_parts(const Recipe& r) {
  std::vector<RampPart> parts;
  const std::vector<int64_t>& ramp = r.train.rampup_batch_size;
  if (ramp.empty()) return parts;
  const int64_t increments = (r.train.global_batch_size - ramp[0]) / ramp[1];
  double consumed = 0;
  for (int64_t i = 0; i < increments; ++i) {
    const int64_t batch = ramp[0] + i * ramp[1];
    const double until = double(i + 1) * double(ramp[2]) / double(increments);
    const double steps = std::max(0.0, std::ceil((until - consumed) / double(batch)));
    consumed += steps * double(batch);
    if (steps > 0) parts.push_back({batch, int64_t(steps)});
  }
  return parts;
}

// Appends the span, cut where its batch grows.
void add_ramp(const PhaseSpan& whole, std::vector<PhaseSpan>& spans) {
  PhaseSpan span = whole;
  span.recipe.train.rampup_batch_size.clear();
  for (const RampPart& of : ramp_parts(whole.recipe)) {
    if (span.first_step >= whole.end_step) break;
    PhaseSpan part = span;
    part.end_step = std::min(whole.end_step, span.first_step + of.steps);
    part.recipe.train.global_batch_size = of.batch;
    follow_batch(part, double(of.batch) / double(whole.recipe.train.global_batch_size), {});
    span.first_step = part.end_step;
    spans.push_back(std::move(part));
  }
  if (span.first_step < span.end_step || whole.recipe.train.rampup_batch_size.empty()) spans.push_back(std::move(span));
}

// A phase that says nothing of the batch would end a ramp in silence.
std::optional<std::string> cut_ramp_problem(const Recipe& before, int64_t first_step, const Recipe::Phase& phase) {
  if (sets(phase, "train.global_batch_size") || sets(phase, "train.rampup_batch_size")) return {};
  int64_t end = first_step, batch = before.train.global_batch_size;
  for (const RampPart& part : ramp_parts(before)) {
    if (end <= phase.from_step) batch = part.batch;
    end += part.steps;
  }
  if (end <= phase.from_step) return {};
  return fmt::format(
      "the batch still grows then, with {} of {} samples, and a ramp ends with its phase: begin at step {}, where it "
      "has "
      "grown, or say train.global_batch_size or train.rampup_batch_size here",
      batch, before.train.global_batch_size, end);
}

std::string words_of_axes(const Recipe::Parallel& p) {
  std::string text;
  const std::pair<const char*, int64_t> axes[] = {{"dp", p.dp}, {"tp", p.tp}, {"pp", p.pp},
                                                  {"cp", p.cp}, {"ep", p.ep}, {"ZeRO stage", p.zero_stage}};
  for (const auto& [axis, size] : axes)
    if (size > int64_t(axis[0] != 'Z')) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", axis, size);
  return text.empty() ? "one rank" : text;
}

std::string name_of_phase(const Recipe::Phase& phase) {
  return fmt::format("the [[phase]] with from_step = {}", phase.from_step);
}

std::optional<std::string> ramp_problem(const Recipe& r) {
  const std::vector<int64_t>& ramp = r.train.rampup_batch_size;
  if (ramp.empty()) return {};
  const int64_t full = r.train.global_batch_size;
  const std::string given = fmt::format("train.rampup_batch_size = [{}]", fmt::join(ramp, ", "));
  if (ramp.size() != 3)
    return given +
           ": expected three numbers: the samples of the first steps, by how many a step grows each time, and "
           "over how many samples that goes on, as in [16, 16, 100000]; or none";
  if (ramp[0] >= full || (full - ramp[0]) % ramp[1] != 0)
    return fmt::format("{}: expected to reach train.global_batch_size = {} from {} in steps of {}", given, full,
                       ramp[0], ramp[1]);
  if ((full - ramp[0]) / ramp[1] > kMostRampSteps)
    return fmt::format("{}: expected at most {} increments; the nearest that works: a larger one", given,
                       kMostRampSteps);
  return {};
}

std::optional<std::string> objective_problem(const Recipe& before, const Recipe& now, const Recipe::Phase& phase) {
  const ObjectiveKind a = before.train.objective, b = now.train.objective;
  if (a == b) return {};
  if (has_reference(b) && !has_head(a, ModelHead::text) && !sets(phase, "objective.reference"))
    return fmt::format(
        "its reference would be the model that this phase begins with, and what the run keeps of that is the "
        "checkpoint of a reward model, which has no head for text; the nearest that works: {}",
        now.adapter.kind == AdapterKind::none
            ? fmt::format("objective.reference = {}, in this phase", in_quotes(now.model.path))
            : "objective.reference = an adapter of the same base that was trained on text, in this phase");
  if (now.checkpoint.keep_best > 0)
    return fmt::format(
        "checkpoint.keep_best = {} compares held-out losses of all steps, and these objectives' are no "
        "measure of each other; the nearest that works: checkpoint.keep_best = 0",
        now.checkpoint.keep_best);
  return {};
}

// Why a setting does not go with the rest of the recipe: as it is before the phase, and in it.
std::optional<std::string> setting_problem(const Recipe& before, const Recipe& r, const Recipe::Phase& phase,
                                           const std::string& key, const std::string& value) {
  const bool data = key == "data.train" || key == "data.weights", cut = data || key == "train.seq_length";
  if (key == "train.objective") return objective_problem(before, r, phase);
  if (cut && !r.objective.teacher_logits.empty() && !sets(phase, "objective.teacher_logits"))
    return "objective.teacher_logits was made of one sequence length and order of the data; name those of this phase, "
           "or objective.teacher in their place";
  if (key == kOfTheRun) return "the layout of a teacher is that of the whole run; leave it out, or set it for the run";
  if (cut && r.data.valid_fraction > 0)
    return "data.valid_fraction would hold out other samples in each phase, and train on those of another; name files "
           "in data.valid in its place";
  if (data && !r.data.loss_mask.empty()) return "data.loss_mask belongs to the one file of data.train; leave it out";
  if (is_layout_key(key) && sets(phase, "train.objective"))
    return "another objective begins with what the steps before it have in memory, and another layout with a "
           "checkpoint; let the one begin a step behind the other";
  const bool of_rates_alone = key == "optimizer.lr_scaling" && value != "\"sqrt_adam\"";
  if (of_rates_alone && sets(phase, "optimizer.lr") && !sets(phase, "train.rampup_batch_size"))
    return "it has no effect in a phase that says optimizer.lr itself; leave one of them out";
  return {};
}

// What a supervisor may make of a layout is said by the phases then.
std::optional<std::string> fleet_problem(const Recipe& r) {
  if (std::none_of(r.phases.begin(), r.phases.end(), sets_layout)) return {};
  const Recipe::Fleet none;
  const auto& f = r.fleet;
  if (f.min_ranks == 0 && f.max_ranks == 0 && f.may_change == none.may_change && f.cluster.empty()) return {};
  return "fleet.min_ranks, fleet.max_ranks, fleet.may_change and fleet.cluster choose among layouts, and here "
         "[[phase]] tables say what the layout is; leave the ones out or the others";
}

// Which results a task has is known when its questions are read (RunTasks); which task it is, already here.
std::optional<std::string> requirement_problem(const Recipe& r, const std::string& text) {
  const std::string result = parse_requirement(text)->result, set = result.substr(0, result.find('.'));
  for (const std::string& word : r.eval.tasks) {
    const std::string task = word.substr(0, word.find('='));
    if (set == task || set.starts_with(task + "_")) return {};
  }
  return fmt::format("the run does not score {}: name it in eval.tasks, as \"{}=FILE\"", set, set);
}

}  // namespace

bool is_phase_key(std::string_view key) {
  return key.starts_with(kPhaseSection) || is_layout_key(key) ||
         std::find(std::begin(kPhaseKeys), std::end(kPhaseKeys), key) != std::end(kPhaseKeys);
}

std::string phase_keys_text() {
  return fmt::format("{}, {}, all of [parallel], and all of [objective] but top_k", fmt::join(kPhaseKeys, ", "),
                     kLayoutKey);
}

bool has_head(ObjectiveKind objective, ModelHead head) {
  switch (head) {
    case ModelHead::text:
      return objective != ObjectiveKind::reward;
    case ModelHead::score:
      return objective == ObjectiveKind::reward;
    case ModelHead::values:
      break;
  }
  return objective == ObjectiveKind::ppo;
}

bool changes_heads(const Recipe& before, const Recipe& now) {
  const ObjectiveKind a = before.train.objective, b = now.train.objective;
  return has_head(a, ModelHead::score) != has_head(b, ModelHead::score) ||
         has_head(a, ModelHead::values) != has_head(b, ModelHead::values);
}

bool has_phases(const Recipe& r) { return !r.phases.empty() || !r.train.rampup_batch_size.empty(); }

std::vector<PhaseSpan> phase_spans(const Recipe& recipe) {
  PhaseSpan now{.end_step = recipe.train.train_iters, .recipe = as_stated(recipe)};
  now.recipe.phases.clear();
  std::vector<PhaseSpan> spans;
  for (size_t i = 0; i <= recipe.phases.size(); ++i) {
    const bool last = i == recipe.phases.size();
    now.end_step = last ? recipe.train.train_iters : recipe.phases[i].from_step;
    add_ramp(now, spans);
    if (!last) now = following(now, recipe.phases[i], int(i) + 1, recipe);
  }
  set_averages(spans, recipe.optimizer);
  for (PhaseSpan& span : spans) {
    if (recipe.layout_now && span.layout_from == recipe.layout_now->first_step)
      span.recipe.parallel = recipe.parallel, span.recipe.run.ranks = recipe.run.ranks;
    if (span.recipe.data.valid.empty() && span.recipe.data.valid_fraction == 0) span.recipe.train.eval_interval = 0;
    if (span.phase > 0 && !reads_tokens(span.recipe.train.objective)) span.recipe.train.eval_iters = 0;  // all are read
    auto& p = span.recipe.parallel;
    if (span.recipe.objective.top_k == 0) {
      p.teacher_tp = p.teacher_pp = p.teacher_cp = 0;
      p.teacher_ep = 1;
    }
    if (!has_frozen_model(span.recipe)) span.recipe.parallel.frozen_ep = span.recipe.parallel.frozen_shard_size = 0;
  }
  return spans;
}

bool has_layouts(const Recipe& recipe) { return phase_spans(recipe).back().layout_from > 0; }

bool changes_layout_at(const Recipe& recipe, int64_t step) {
  const std::vector<PhaseSpan> spans = phase_spans(recipe);
  return step > 0 && std::any_of(spans.begin(), spans.end(), [&](const auto& s) { return s.layout_from == step; });
}

Recipe in_layout_at(const Recipe& recipe, int64_t steps_done) {
  Recipe here = as_stated(recipe);
  const Recipe stated = here;
  for (const PhaseSpan& span : phase_spans(stated)) {
    if (span.first_step > steps_done || span.layout_from == 0) continue;
    here.layout_now = {span.layout_from, stated.parallel, stated.run.ranks};
    here.parallel = span.recipe.parallel;
    here.run.ranks = span.recipe.run.ranks;
  }
  return here;
}

int64_t layout_from(const Recipe& recipe) { return recipe.layout_now ? recipe.layout_now->first_step : 0; }

Recipe as_stated(const Recipe& recipe) {
  Recipe stated = recipe;
  if (!recipe.layout_now) return stated;
  stated.parallel = recipe.layout_now->stated;
  stated.run.ranks = recipe.layout_now->stated_ranks;
  stated.layout_now.reset();
  return stated;
}

Recipe on_layout_of(const Recipe& before, const Recipe& next) {
  Recipe made = before;
  made.parallel = next.parallel;
  made.run.ranks = next.run.ranks;
  if (!reads_tokens(before.train.objective)) return made;  // rows are read batch by batch
  made.train.global_batch_size = next.train.global_batch_size;
  made.train.micro_batch_size = next.train.micro_batch_size;
  return made;
}

std::string name_of(const PhaseSpan& span) {
  const int64_t last = span.end_step - 1;
  return fmt::format(
      "{}, {}", span.phase == 0 ? "at first" : fmt::format("phase {}", span.phase),
      last == span.first_step ? fmt::format("step {}", last) : fmt::format("steps {} to {}", span.first_step, last));
}

std::string to_string(const PhaseSpan& span) {
  const Recipe& r = span.recipe;
  const auto& t = r.train;
  std::string text = name_of(span) + ": ";
  if (t.objective != ObjectiveKind::cross_entropy) text += fmt::format("{}, ", t.objective);
  text += fmt::format("{} samples of {} tokens, {} at a time; learning rate {:.4g} at most", t.global_batch_size,
                      t.seq_length, t.micro_batch_size, r.optimizer.lr);
  if (span.lr_factor != 1)
    text += fmt::format(
        " ({:.4g} x {:.4g}, by optimizer.lr_scaling{})", r.optimizer.lr / span.lr_factor, span.lr_factor,
        r.optimizer.lr_scaling == LrScaling::none ? " before" : fmt::format(" = \"{}\"", r.optimizer.lr_scaling));
  if (span.decay_factor != 1)
    text += fmt::format("; adam_beta1 {:.6g}, adam_beta2 {:.6g}, adam_eps {:.4g}, with 1 - beta x {:.4g}",
                        r.optimizer.adam_beta1, r.optimizer.adam_beta2, r.optimizer.adam_eps, span.decay_factor);
  if (span.layout_from > 0) text += fmt::format(", on {}", words_of_axes(r.parallel));
  if (span.lr_first_step > 0) text += fmt::format(", its schedule counted from step {}", span.lr_first_step);
  return text;
}

std::vector<PhaseProblem> phase_problems(const Recipe& r) {
  std::vector<PhaseProblem> all;
  if (const auto problem = ramp_problem(r)) all.push_back({-1, *problem});
  if (has_phases(r) && r.train.epochs > 0)
    all.push_back({-1, fmt::format("train.epochs = {}: expected 0 beside [[phase]] or train.rampup_batch_size, which "
                                   "count steps and samples of the run; say train.train_iters",
                                   r.train.epochs)});
  if (r.phases.size() > kMostPhases)
    all.push_back({-1, fmt::format("{} [[phase]] tables: expected at most {}; a batch that grows in many steps is "
                                   "train.rampup_batch_size",
                                   r.phases.size(), kMostPhases)});
  if (const auto problem = fleet_problem(r)) all.push_back({-1, *problem});
  int64_t before = 0;
  Recipe values = r;
  for (size_t i = 0; i < r.phases.size(); ++i) {
    const Recipe::Phase& phase = r.phases[i];
    const Recipe of_before = values;
    begin_phase(values, phase, r);
    const auto add = [&](const std::string& text) { all.push_back({int(i), name_of_phase(phase) + ": " + text}); };
    if (phase.from_step <= before)
      add(fmt::format("expected a step behind {}, where {} begins", before,
                      i == 0 ? "the run" : "the phase before it"));
    before = phase.from_step;
    if (r.train.epochs == 0 && phase.from_step >= r.train.train_iters)
      add(fmt::format("expected a step below train.train_iters = {}", r.train.train_iters));
    for (const std::string& one : phase.require)
      if (const auto problem = requirement_problem(r, one))
        add(fmt::format("require = {}: {}", in_quotes(one), *problem));
    if (phase.settings.empty() && phase.require.empty())
      add(fmt::format("changes nothing; these keys may change: {}", phase_keys_text()));
    for (const auto& [key, value] : phase.settings)
      if (const auto problem = setting_problem(of_before, values, phase, key, value))
        add(fmt::format("{} = {}: {}", key, value, *problem));
  }
  if (!all.empty()) return all;
  Recipe now = r;  // a ramp must reach the batch size of its own phase
  for (size_t i = 0; i < r.phases.size(); ++i) {
    if (const auto problem = cut_ramp_problem(now, i > 0 ? r.phases[i - 1].from_step : 0, r.phases[i]))
      all.push_back({int(i), name_of_phase(r.phases[i]) + ": " + *problem});
    begin_phase(now, r.phases[i], r);
    if (const auto problem = ramp_problem(now)) {
      all.push_back({int(i), name_of_phase(r.phases[i]) + ": " + *problem});
      break;  // what follows counts by this ramp
    }
  }
  return all;
}

bool has_idle_lr_scaling(const Recipe& r) {
  if (r.optimizer.lr_scaling == LrScaling::none || !r.train.rampup_batch_size.empty()) return false;
  return std::none_of(r.phases.begin(), r.phases.end(), [](const Recipe::Phase& phase) {
    return sets(phase, "train.global_batch_size") || sets(phase, "train.rampup_batch_size");
  });
}

Recipe without_phases(const Recipe& recipe) { return phase_spans(recipe)[0].recipe; }

std::vector<std::string> phase_differences(const Recipe& there, const Recipe& here, int64_t steps_done) {
  // The layout may change, as that of the whole run.
  const auto without_layout = [](Recipe::Phase phase) {
    std::erase_if(phase.settings, [](const auto& s) { return is_layout_key(s.first); });
    return phase;
  };
  const auto text_of = [](const Recipe::Phase* phase) -> std::string {
    if (phase == nullptr) return "no such phase";
    std::string text = phase->require.empty() ? "" : fmt::format("require = {}", fmt::join(phase->require, " and "));
    for (const auto& [key, value] : phase->settings)
      text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key, value);
    return text;
  };
  const auto find = [](const Recipe& r, int64_t step) {
    const auto at = std::find_if(r.phases.begin(), r.phases.end(), [&](const auto& p) { return p.from_step == step; });
    return at == r.phases.end() ? nullptr : &*at;
  };
  std::vector<std::string> all;
  for (const Recipe* r : {&there, &here})
    for (const Recipe::Phase& phase : r->phases) {
      const Recipe::Phase *a = find(there, phase.from_step), *b = find(here, phase.from_step);
      const bool told = r == &here && a != nullptr;  // with the other's
      if (phase.from_step >= steps_done || told ||
          (a != nullptr && b != nullptr && without_layout(*a) == without_layout(*b)))
        continue;
      all.push_back(fmt::format("{}, which has begun (the run has done {} steps): {} there, {} here",
                                name_of_phase(phase), steps_done, text_of(a), text_of(b)));
    }
  return all;
}

}  // namespace weft
