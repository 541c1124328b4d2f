// Refuses what this version cannot run, and choices that would have no effect.
#include <algorithm>
#include <tuple>
#include <utility>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/recipe/autotune_settings.h"
#include "weft/recipe/recipe_keys.h"
#include "weft/recipe/recipe_phases.h"
#include "weft/schedule/shares.h"

namespace weft {
namespace {

// The settings of [objective], by those that heed them.
bool is_of(ObjectiveKind objective, std::string_view setting) {
  const auto one_of = [&](std::initializer_list<std::string_view> all) {
    return std::find(all.begin(), all.end(), setting) != all.end();
  };
  switch (objective) {
    case ObjectiveKind::cross_entropy:
    case ObjectiveKind::reward:
      return false;
    case ObjectiveKind::distill:
      return one_of({"teacher", "teacher_logits", "top_k", "temperature", "alpha", "divergence"});
    case ObjectiveKind::dpo:
      return one_of({"loss_type", "beta", "label_smoothing", "average_logps", "reference", "precompute_ref_log_probs"});
    case ObjectiveKind::grpo:
      return one_of({"inner_updates", "group_size", "clip_eps_low", "clip_eps_high", "kl_beta", "normalisation",
                     "max_completion_length", "advantage_std", "advantage_eps", "reference",
                     "precompute_ref_log_probs"});
    case ObjectiveKind::ppo:
      return one_of({"inner_updates", "clip_eps_low", "clip_eps_high", "gamma", "lambda", "whiten_advantages",
                     "value_clip", "value_coef", "kl_coef"});
    case ObjectiveKind::kto:
      break;
  }
  return one_of({"beta", "desirable_weight", "undesirable_weight", "reference", "precompute_ref_log_probs"});
}

// Whether it reads rows that may be of texts: those without numbers for each token.
bool has_text_rows(ObjectiveKind objective) {
  return !reads_tokens(objective) && data_key_of(objective) != "data.rollouts";
}

}  // namespace

bool heeds(ObjectiveKind objective, const RecipeKey& key) {
  if (key.section() == "objective") return is_of(objective, key.last());
  if (key.name == "train.loss_average") return objective == ObjectiveKind::cross_entropy;
  if (key.section() != "data" || key.name == "data.shuffle" || key.name == data_key_of(objective)) return true;
  if (key.name == "data.chat_template") return has_text_rows(objective);
  if (key.name == "data.valid") return true;
  if (key.name == "data.tokenizer" && has_text_rows(objective)) return true;
  const bool is_rows = !key.allowed.example.empty();
  return reads_tokens(objective) && !is_rows;
}
namespace {

class Refusals {
 public:
  void add(bool refused, const std::string& setting, const std::string& reason, const std::string& nearest) {
    if (refused)
      lines_.push_back(fmt::format("{} cannot run: {}; the nearest that works: {}", setting, reason, nearest));
  }
  void add_idle(bool refused, const std::string& setting, const std::string& reason, const std::string& nearest) {
    if (refused)
      lines_.push_back(fmt::format("{} has no effect: {}; the nearest that works: {}", setting, reason, nearest));
  }
  void throw_any() const {
    if (lines_.empty()) return;
    std::string text = lines_[0];
    for (size_t i = 1; i < lines_.size(); ++i) text += "\n" + lines_[i];
    throw ConfigError(text);
  }

 private:
  std::vector<std::string> lines_;
};

// What objective.precompute_ref_log_probs has not.
void refuse_stored_reference(const Recipe& r, Refusals& refusals) {
  if (!r.objective.precompute_ref_log_probs) return;
  refusals.add(r.moe.overflow == ExpertOverflow::drop, "objective.precompute_ref_log_probs = true",
               "moe.overflow = \"drop\" drops tokens by what else is in their micro-batch, which the stored numbers do "
               "not know",
               "that key = false, or moe.overflow = \"error\"");
}

// What the objectives beside cross-entropy have not.
void refuse_beside_objective(const Recipe& r, Refusals& refusals) {
  if (r.train.objective == ObjectiveKind::cross_entropy) return;
  const std::string objective = fmt::format("train.objective = \"{}\"", r.train.objective);
  refusals.add(r.train.mtp_loss_coef > 0, fmt::format("train.mtp_loss_coef = {}", r.train.mtp_loss_coef),
               fmt::format("{} has no loss of the token after the next one", objective), "train.mtp_loss_coef = 0");
  refusals.add(data_key_of(r.train.objective) == "data.rollouts" && !r.data.valid.empty(),
               fmt::format("data.valid with train.objective = \"{}\"", r.train.objective),
               "held-out rollouts are of the model that sampled them, and say nothing of the one that is trained",
               "data.valid = [], and prompts of your own with `weft generate` or `weft eval`");
  const bool rows = !reads_tokens(r.train.objective);
  const char* const what = data_key_of(r.train.objective) == "data.pairs" ? "pairs" : "examples";
  refusals.add(rows && r.data.valid.size() > 1, fmt::format("data.valid with {} entries", r.data.valid.size()),
               fmt::format("held-out {0} are one file, as those of data.{0} are", what), "one entry");
  refusals.add_idle(rows && !r.data.valid.empty() && r.train.eval_iters > 0,
                    fmt::format("train.eval_iters = {}", r.train.eval_iters),
                    fmt::format("held-out {} are all read", what), "train.eval_iters = 0");
  refusals.add(r.train.objective == ObjectiveKind::kto && r.train.global_batch_size == 1, "train.global_batch_size = 1",
               fmt::format("{} judges each example beside how far the model has moved on the others of its step, and "
                           "there is no other",
                           objective),
               "train.global_batch_size = 2 (a ramp begins with 2 too)");
  refuse_stored_reference(r, refusals);
}

// A mean over documents needs to know where they begin and end, whole.
void refuse_mean_over_documents(const Recipe& r, Refusals& refusals) {
  if (r.train.loss_average != LossAverage::document || r.train.objective != ObjectiveKind::cross_entropy) return;
  const std::string key = "train.loss_average = \"document\"";
  refusals.add(r.data.packing != PackingKind::first_fit, key,
               fmt::format("data.packing = \"{}\" cuts documents wherever a sample ends", r.data.packing),
               "data.packing = \"first-fit\", or train.loss_average = \"token\"");
  refusals.add(r.train.mtp_loss_coef > 0, key,
               fmt::format("train.mtp_loss_coef = {} adds a loss that is a mean over tokens", r.train.mtp_loss_coef),
               "train.mtp_loss_coef = 0, or train.loss_average = \"token\"");
}

// What was set beside its default, for an objective or an optimizer that does not heed it.
void refuse_unheeded(const Recipe& r, Refusals& refusals) {
  Recipe given = r, fallback;
  const auto keys = recipe_keys(given), fallbacks = recipe_keys(fallback);
  const std::string objective = fmt::format("train.objective = \"{}\"", r.train.objective),
                    optimizer = fmt::format("optimizer.name = \"{}\"", r.optimizer.name);
  for (size_t i = 0; i < keys.size(); ++i) {
    const RecipeKey& key = keys[i];
    const std::string value = value_of(key), usual = value_of(fallbacks[i]);
    if (value == usual || (heeds(r.train.objective, key) && heeds(r.optimizer.name, key))) continue;
    const bool reads_texts = !r.eval.tasks.empty() || r.train.sample_interval > 0;
    if (key.name == "data.tokenizer" && reads_texts) continue;  // by which questions are read
    const std::string instead = key.section() == "data"
                                    ? fmt::format("{} reads {}", objective, data_key_of(r.train.objective))
                                    : (heeds(r.optimizer.name, key) ? objective : optimizer) + " has no such setting";
    refusals.add_idle(true, fmt::format("{} = {}", key.name, value), instead, fmt::format("{} = {}", key.name, usual));
  }
  const auto& o = r.objective;
  const bool ipo = o.loss_type == PreferenceLoss::ipo, dpo = r.train.objective == ObjectiveKind::dpo;
  refusals.add_idle(dpo && ipo && o.label_smoothing > 0,
                    fmt::format("objective.label_smoothing = {}", o.label_smoothing),
                    "objective.loss_type = \"ipo\" has none", "objective.label_smoothing = 0");
  const Recipe::Objective usual;
  const bool stored = r.train.objective == ObjectiveKind::distill && !o.teacher_logits.empty();
  refusals.add_idle(stored && !o.teacher.empty(), fmt::format("objective.teacher = \"{}\"", o.teacher),
                    "objective.teacher_logits says what a teacher made of the data", "objective.teacher = \"\"");
  refusals.add(
      stored && o.divergence == DivergenceChoice::reverse, "objective.divergence = \"reverse\"",
      "objective.teacher_logits has the probabilities of a teacher's likeliest tokens alone, and the student may "
      "hold others likely",
      "objective.divergence = \"forward\", or objective.teacher in place of objective.teacher_logits");
  // Stored logits are of one temperature, whatever is made of them.
  const bool unused = r.train.objective == ObjectiveKind::distill && o.alpha == 0 && !stored;
  refusals.add_idle(unused && o.divergence == DivergenceChoice::reverse, "objective.divergence = \"reverse\"",
                    "objective.alpha = 0 leaves the divergence out of the loss", "objective.divergence = \"forward\"");
  refusals.add_idle(unused && o.temperature != usual.temperature,
                    fmt::format("objective.temperature = {}", o.temperature),
                    "objective.alpha = 0 leaves the divergence out of the loss",
                    fmt::format("objective.temperature = {}", usual.temperature));
  refusals.add_idle(
      r.train.objective == ObjectiveKind::grpo && o.normalisation != LossNormalisation::constant &&
          o.max_completion_length > 0,
      fmt::format("objective.max_completion_length = {}", o.max_completion_length),
      fmt::format("objective.normalisation = \"{}\" divides by the tokens that there are", o.normalisation),
      "objective.max_completion_length = 0");
}

// A teacher that gives its largest logits alone, on a layout of its own.
void refuse_beside_top(const Recipe& r, Refusals& refusals) {
  const auto& p = r.parallel;
  const bool distills = r.train.objective == ObjectiveKind::distill, stored = !r.objective.teacher_logits.empty();
  const std::string top = fmt::format("objective.top_k = {}", r.objective.top_k);
  refusals.add_idle(distills && stored && r.objective.top_k > 0, top,
                    "the file of objective.teacher_logits says how many logits it has", "objective.top_k = 0");
  if (!distills || stored || r.objective.top_k == 0) return;
  refusals.add(
      r.objective.divergence == DivergenceChoice::reverse, "objective.divergence = \"reverse\"",
      fmt::format("{} gives the probabilities of the teacher's likeliest tokens alone, and the student may hold "
                  "others likely",
                  top),
      "objective.divergence = \"forward\", or objective.top_k = 0");
  const std::pair<const char*, int64_t> keys[] = {{"parallel.frozen_shard_size", p.frozen_shard_size},
                                                  {"parallel.frozen_ep", p.frozen_ep}};
  for (const auto& [key, size] : keys)
    refusals.add(size > 0, fmt::format("{} = {}", key, size),
                 fmt::format("with {} the teacher has ranks of its own, which parallel.teacher_tp, teacher_pp, "
                             "teacher_cp and teacher_ep say",
                             top),
                 fmt::format("{} = 0", key));
  refusals.add(
      p.recompute == RecomputeKind::budget, "parallel.recompute = \"budget\"",
      fmt::format("with {} ranks of one stage hold different parts of the teacher, and blocks are chosen for a "
                  "stage",
                  top),
      "parallel.recompute = \"full\" and no parallel.memory_budget");
  const bool cut = p.teacher_cp > 1 || p.teacher_ep > 1;
  refusals.add(cut && r.train.numerics == NumericsChoice::invariant, "train.numerics = \"invariant\"",
               "parallel.teacher_cp and parallel.teacher_ep add in an order of their own",
               "train.numerics = \"fast\", or parallel.teacher_cp = 1 and parallel.teacher_ep = 1");
}

// A teacher's axes where no step of the run has a teacher that heeds them.
void refuse_idle_axes(const Recipe& r, const std::vector<PhaseSpan>& spans, Refusals& refusals) {
  const auto& p = r.parallel;
  if (std::any_of(spans.begin(), spans.end(), [](const auto& s) { return s.recipe.objective.top_k > 0; })) return;
  const std::tuple<const char*, int64_t, int64_t> keys[] = {{"parallel.teacher_tp", p.teacher_tp, 0},
                                                            {"parallel.teacher_pp", p.teacher_pp, 0},
                                                            {"parallel.teacher_cp", p.teacher_cp, 0},
                                                            {"parallel.teacher_ep", p.teacher_ep, 1}};
  for (const auto& [key, size, usual] : keys)
    refusals.add_idle(size != usual, fmt::format("{} = {}", key, size),
                      "no teacher gives its largest logits alone (objective.top_k = 0), and one that gives its whole "
                      "distribution is cut as the student is",
                      fmt::format("{} = {}, or a teacher in memory and objective.top_k = 64", key, usual));
}

// What is said of frozen models where no step of the run has one, or where they are as they would be.
void refuse_idle_frozen(const Recipe& r, Refusals& refusals) {
  const auto& p = r.parallel;
  const std::vector<PhaseSpan> spans = phase_spans(r);
  const bool none = std::none_of(spans.begin(), spans.end(), [](const auto& s) { return has_frozen_model(s.recipe); });
  const std::pair<const char*, int64_t> keys[] = {{"parallel.frozen_shard_size", p.frozen_shard_size},
                                                  {"parallel.frozen_ep", p.frozen_ep}};
  for (const auto& [key, size] : keys)
    refusals.add_idle(none && size > 0, fmt::format("{} = {}", key, size),
                      "no model is frozen beside the one that is trained: neither a teacher in memory nor a reference "
                      "with weights of its own",
                      fmt::format("{} = 0", key));
  refusals.add_idle(!none && p.frozen_shard_size == 1 && p.zero_stage < 3 && p.dp * p.cp > 1,
                    "parallel.frozen_shard_size = 1",
                    fmt::format("parallel.zero_stage = {} leaves each rank whole weights", p.zero_stage),
                    "parallel.frozen_shard_size = 0");
  refuse_idle_axes(r, spans, refusals);
}

// Choices that nothing of the run heeds. What is only the same on one rank is not among them: axes change from run to
// run.
void refuse_idle(const Recipe& r, Refusals& refusals) {
  const auto& p = r.parallel;
  Recipe::Adapter none = r.adapter;
  none.kind = AdapterKind::none;
  refusals.add_idle(r.train.objective == ObjectiveKind::grpo && r.objective.advantage_std == AdvantageStd::none &&
                        r.objective.advantage_eps != Recipe::Objective().advantage_eps,
                    fmt::format("objective.advantage_eps = {}", r.objective.advantage_eps),
                    "objective.advantage_std is \"none\": advantages are not divided",
                    fmt::format("objective.advantage_eps = {}", Recipe::Objective().advantage_eps));
  refusals.add_idle(r.adapter == none && none != Recipe::Adapter(), "[adapter]", "adapter.kind is \"none\"",
                    "adapter.kind = \"lora\"");
  refusals.add_idle(r.adapter.kind != AdapterKind::none && !is_beside_codes(r.adapter.kind) &&
                        r.adapter.quant_type != Recipe::Adapter().quant_type,
                    fmt::format("adapter.quant_type = \"{}\"", r.adapter.quant_type),
                    fmt::format("with adapter.kind = \"{}\" the model is kept as it is computed with", r.adapter.kind),
                    has_magnitudes(r.adapter.kind) ? "adapter.kind = \"qdora\"" : "adapter.kind = \"qlora\"");
  const std::string shards = fmt::format("parallel.zero_shard_size = {}", p.zero_shard_size);
  refusals.add_idle(p.zero_stage == 0 && p.zero_shard_size > 0, shards,
                    "parallel.zero_stage = 0 divides nothing among data parallel ranks",
                    "parallel.zero_shard_size = 0");
  refusals.add_idle(p.zero_stage > 0 && p.zero_shard_size == 1 && p.dp * p.cp > 1, shards,
                    fmt::format("parallel.zero_stage = {} divides nothing over one rank", p.zero_stage),
                    "parallel.zero_shard_size = 0");
  refuse_idle_frozen(r, refusals);
  const PrecisionChoice precision = r.train.precision;
  refusals.add_idle(r.train.loss_scale > 0 && (precision == PrecisionChoice::f32 || precision == PrecisionChoice::bf16),
                    fmt::format("train.loss_scale = {}", r.train.loss_scale),
                    fmt::format("train.precision = \"{}\" does not scale the loss", precision), "train.loss_scale = 0");
  refusals.add_idle(r.moe.overflow == ExpertOverflow::drop && !r.moe.capacity_factor, "moe.overflow = \"drop\"",
                    "without moe.capacity_factor there is room for all rows", "moe.overflow = \"error\"");
  refuse_unheeded(r, refusals);
  const auto& o = r.optimizer;
  refusals.add_idle(has_idle_lr_scaling(r), fmt::format("optimizer.lr_scaling = \"{}\"", o.lr_scaling),
                    "neither train.rampup_batch_size nor a [[phase]] with train.global_batch_size changes the batch",
                    "optimizer.lr_scaling = \"none\"");
  refusals.add_idle(o.lr_decay_style != LrSchedule::Style::wsd && o.lr_wsd_decay_iters > 0,
                    fmt::format("optimizer.lr_wsd_decay_iters = {}", o.lr_wsd_decay_iters),
                    fmt::format("optimizer.lr_decay_style = \"{}\" has no fall of its own", o.lr_decay_style),
                    "optimizer.lr_wsd_decay_iters = 0");
}

// What a run goes back to, and how it goes on, must be plain.
void refuse_spikes(const Recipe& r, Refusals& refusals) {
  const Recipe::Train &t = r.train, usual;
  const bool none = t.on_spike == SpikeAction::none, rollback = t.on_spike == SpikeAction::rollback;
  refusals.add_idle(none && t.spike_sigma_factor != usual.spike_sigma_factor,
                    fmt::format("train.spike_sigma_factor = {}", t.spike_sigma_factor),
                    "train.on_spike = \"none\" looks for no spikes", "train.on_spike = \"skip\"");
  refusals.add_idle(none && t.spike_window != usual.spike_window,
                    fmt::format("train.spike_window = {}", t.spike_window),
                    "train.on_spike = \"none\" looks for no spikes", "train.on_spike = \"skip\"");
  refusals.add_idle(none && t.max_spikes != usual.max_spikes, fmt::format("train.max_spikes = {}", t.max_spikes),
                    "train.on_spike = \"none\" looks for no spikes", "train.on_spike = \"skip\"");
  const std::string key = "train.on_spike = \"rollback\"";
  refusals.add(rollback && r.checkpoint.save_interval == 0, key,
               "with checkpoint.save_interval = 0 there is no checkpoint to go back to",
               "checkpoint.save_interval = 100, or train.on_spike = \"skip\"");
  refusals.add(rollback && r.train.autotune, key,
               "train.autotune counts its trials in steps of which the data is known before, and a run that goes past "
               "batches would be elsewhere in it",
               "train.on_spike = \"skip\", or train.autotune = false");
  refusals.add(rollback && has_phases(r), key,
               "phases and a ramp of the batch begin at steps of which the data is known before, and a run that goes "
               "past batches would be elsewhere in it",
               "train.on_spike = \"skip\"");
  refusals.add(
      rollback && t.objective == ObjectiveKind::kto && r.objective.precompute_ref_log_probs, key,
      "the reference of the reference point of kto is stored for the batches of train.train_iters steps, and a "
      "run that goes past some reads further",
      "objective.precompute_ref_log_probs = false, or train.on_spike = \"skip\"");
  const int64_t every = std::max<int64_t>(1, r.checkpoint.save_interval), evals = t.eval_interval;
  refusals.add(rollback && r.checkpoint.keep_best > 0 && evals % every != 0,
               fmt::format("checkpoint.keep_best = {}", r.checkpoint.keep_best),
               fmt::format("{} goes back to multiples of checkpoint.save_interval = {}, and removes what is behind "
                           "them, where train.eval_interval = {} may leave the best",
                           key, every, evals),
               fmt::format("train.eval_interval = {}, or train.on_spike = \"skip\"",
                           std::max<int64_t>(1, evals / every) * every));
}

struct Hindrance {
  std::string why, works;
};

// A step can be replayed where a data parallel neighbour holds all that it is made of.
std::vector<Hindrance> hindrances_of_replays(const Recipe& r) {
  std::vector<Hindrance> all;
  const auto& p = r.parallel;
  if (r.train.numerics == NumericsChoice::nondeterministic)
    all.push_back({"with train.numerics = \"nondeterministic\" the same work differs in its last bits",
                   "train.numerics = \"fast\" or \"invariant\""});
  if (r.train.objective != ObjectiveKind::cross_entropy)
    all.push_back({fmt::format("train.objective = \"{}\" begins a step with passes over other sequences or by other "
                               "models",
                               r.train.objective),
                   "train.check_replicas_interval"});
  if (p.ep > 1)
    all.push_back({fmt::format("with parallel.ep = {} data parallel ranks compute each micro-batch together", p.ep),
                   "parallel.ep = 1"});
  if (has_unequal_shares(p) || r.train.rebalance)
    all.push_back({"ranks with unequal shares have no others' work to do",
                   "parallel.micro_batches = [] and train.rebalance = false"});
  if (r.run.backend == BackendKind::cuda)
    all.push_back({"whether two GPUs compute the same bits has not been tested", "train.check_replicas_interval"});
  return all;
}

void refuse_replays(const Recipe& r, Refusals& refusals) {
  if (r.train.replay_interval == 0) return;
  const std::string key = fmt::format("train.replay_interval = {}", r.train.replay_interval);
  for (const Hindrance& h : hindrances_of_replays(r))
    refusals.add(true, key, h.why, h.works + ", or train.replay_interval = 0");
}

// What data-parallel ranks do together in each micro-batch: ranks with fewer of them would not come. And what a run
// whose shares change cannot do.
void refuse_unequal_shares(const Recipe& r, Refusals& refusals) {
  const auto& p = r.parallel;
  const bool unequal = has_unequal_shares(p), rebalances = r.train.rebalance;
  const std::string shares = fmt::format("parallel.micro_batches = {}", text_of_shares(p.micro_batches));
  const std::string key = unequal ? shares : "train.rebalance = true";
  const auto together = [&](bool is_so, const std::string& setting, const std::string& what, const std::string& works) {
    const std::string without =
        fmt::format("{}{}{}", unequal ? "parallel.micro_batches = []" : "", unequal && rebalances ? " and " : "",
                    rebalances ? "train.rebalance = false" : "");
    refusals.add(
        (unequal || (rebalances && p.dp > 1)) && is_so, key,
        fmt::format("with {} {} in every micro-batch, of which all ranks then need equally many", setting, what),
        fmt::format("{}, or {}", works, without));
  };
  together(p.zero_stage > 1, fmt::format("parallel.zero_stage = {}", p.zero_stage),
           p.zero_stage == 2 ? "data parallel ranks sum gradients" : "data parallel ranks gather weights",
           "parallel.zero_stage = 1");
  together(p.ep > 1, fmt::format("parallel.ep = {}", p.ep), "data parallel ranks send each other rows of experts",
           "parallel.ep = 1");
  together(p.frozen_shard_size > 1, fmt::format("parallel.frozen_shard_size = {}", p.frozen_shard_size),
           "data parallel ranks gather weights of the frozen model", "parallel.frozen_shard_size = 0");
  together(p.frozen_ep > 1, fmt::format("parallel.frozen_ep = {}", p.frozen_ep),
           "data parallel ranks send each other rows of the frozen model's experts", "parallel.frozen_ep = 0");
  together(r.train.objective == ObjectiveKind::distill && r.objective.top_k > 0,
           fmt::format("objective.top_k = {}", r.objective.top_k),
           "a teacher that lies on all ranks sends its logits to those that learn them", "objective.top_k = 0");
  refusals.add(rebalances && has_phases(r), "train.rebalance = true",
               "phases and a ramp of the batch have shares of their own", "train.rebalance = false");
  refusals.add(rebalances && r.run.backend == BackendKind::cuda, "train.rebalance = true",
               "the host of a GPU does not see how long ranks wait for each other",
               "train.rebalance = false, and parallel.micro_batches as `weft plan --cluster` finds it");
  refusals.add(rebalances && p.pp > 1 && p.pipeline_schedule == ScheduleKind::gpipe, "train.rebalance = true",
               "parallel.pipeline_schedule = \"gpipe\" keeps all micro-batches, so that a rank with more of them needs "
               "memory that was not planned",
               "parallel.pipeline_schedule = \"1f1b\"");
}

// Trials are a few steps each, all alike but for what is tried.
void refuse_autotune(const Recipe& r, Refusals& refusals) {
  if (!r.train.autotune) return;
  const std::string key = "train.autotune = true", off = "train.autotune = false";
  refusals.add(has_phases(r), key,
               "steps that differ ([[phase]], train.rampup_batch_size) cannot be compared, and later ones may want "
               "other settings",
               off);
  refusals.add(r.train.rebalance || has_unequal_shares(r.parallel), key,
               "shares of micro-batches are of one micro-batch size",
               off + ", or train.rebalance = false and parallel.micro_batches = []");
  refusals.add(r.train.epochs > 0, key, "with train.epochs it is not known before how many steps there are",
               "train.train_iters and train.epochs = 0");
  refusals.add(r.train.objective != ObjectiveKind::cross_entropy, key,
               fmt::format("steps of train.objective = \"{}\" begin with passes whose data is prepared for one "
                           "micro-batch size",
                           r.train.objective),
               off);
  refusals.add(r.train.epochs == 0 && r.train.train_iters <= 2 * kStepsOfTrial, key,
               fmt::format("{} steps are over before two settings have been tried, {} steps each", r.train.train_iters,
                           kStepsOfTrial),
               fmt::format("{}, or train.train_iters = {}", off, 2 * kStepsOfTrial + 1));
  const bool has_more_layouts = r.fleet.min_ranks > 0 || r.fleet.max_ranks > 0;  // of which others may leave some open
  refusals.add_idle(!has_more_layouts && settings_to_tune(r).empty(), key,
                    "it may change train.micro_batch_size (in fast numerics, with more than one sample a rank and no "
                    "moe.capacity_factor), parallel.pipeline_schedule (of 1f1b and zb_h1 with several stages) and "
                    "parallel.cp_comm_type (of p2p, all_gather and a2a in fast numerics), and this recipe leaves none "
                    "of them open",
                    off);
}

void refuse_local_copies(const Recipe& r, Refusals& refusals) {
  const Recipe::Checkpoint& c = r.checkpoint;
  const std::string dir = fmt::format("checkpoint.local_dir = \"{}\"", c.local_dir);
  const std::string interval = fmt::format("checkpoint.local_interval = {}", c.local_interval);
  refusals.add(c.local_interval > 0 && c.local_dir.empty(), interval, "there is no folder for the copies",
               "checkpoint.local_dir = \"/dev/shm/weft\", or checkpoint.local_interval = 0");
  refusals.add_idle(c.local_interval == 0 && !c.local_dir.empty(), dir, "no step writes a copy there",
                    "checkpoint.local_interval = 10, or checkpoint.local_dir = \"\"");
  refusals.add_idle(
      c.local_interval > 0 && c.save_interval > 0 && c.local_interval % c.save_interval == 0, interval,
      fmt::format("each of these steps has a checkpoint, of checkpoint.save_interval = {}", c.save_interval),
      fmt::format("checkpoint.save_interval = {}, or checkpoint.local_interval = 0", 10 * c.local_interval));
  refusals.add(c.local_interval > 0 && r.run.backend == BackendKind::cuda, interval,
               "the copy would take a GPU's memory", "checkpoint.local_dir = \"\" and checkpoint.local_interval = 0");
  if (!c.local_neighbour) return;
  refusals.add_idle(c.local_interval == 0, "checkpoint.local_neighbour = true", "there are no local copies",
                    "checkpoint.local_dir = \"/dev/shm/weft\" with checkpoint.local_interval = 10, or "
                    "checkpoint.local_neighbour = false");
  const std::vector<PhaseSpan> spans = phase_spans(r);  // hosts of processes are only known where these run
  const bool are_threads = std::all_of(spans.begin(), spans.end(),
                                       [](const PhaseSpan& s) { return s.recipe.run.ranks == RanksKind::local; });
  refusals.add_idle(are_threads, "checkpoint.local_neighbour = true",
                    "all ranks are threads of one process, on one host",
                    "run.ranks = \"mpi\", or checkpoint.local_neighbour = false");
}

void refuse_samples(const Recipe& r, Refusals& refusals) {
  const bool samples = r.train.sample_interval > 0;
  const std::string interval = fmt::format("train.sample_interval = {}", r.train.sample_interval);
  refusals.add(samples && r.train.objective == ObjectiveKind::reward, interval,
               "train.objective = \"reward\" trains a model that scores texts and writes none",
               "train.sample_interval = 0");
  refusals.add(samples && r.moe.capacity_factor && r.parallel.ep > 1, interval,
               "moe.capacity_factor has room for the experts' rows of training, and texts may need more",
               "`weft generate` with the checkpoints, or no moe.capacity_factor");
}

// What tasks and held-out losses are scored by must be the model itself, and comparable.
void refuse_scores(const Recipe& r, Refusals& refusals) {
  const bool scores = !r.eval.tasks.empty();
  refusals.add(scores && r.train.objective == ObjectiveKind::reward, "eval.tasks",
               "train.objective = \"reward\" trains a model that scores texts and foretells none", "eval.tasks = []");
  refusals.add(scores && r.moe.capacity_factor && r.parallel.ep > 1, "eval.tasks",
               "moe.capacity_factor has room for the experts' rows of training, and windows of questions may need more",
               "`weft eval RUN --tasks ...` of the checkpoints, or no moe.capacity_factor");
  const std::vector<PhaseSpan> spans = phase_spans(r);
  const Recipe& first = spans[0].recipe;
  const bool differ = std::any_of(spans.begin(), spans.end(), [&](const PhaseSpan& s) {
    return s.recipe.train.seq_length != first.train.seq_length || s.recipe.data.valid != first.data.valid ||
           s.recipe.train.objective != first.train.objective || s.recipe.objective != first.objective;
  });
  const bool mixes = std::any_of(spans.begin(), spans.end(), [](const PhaseSpan& s) {
    return s.recipe.train.objective == ObjectiveKind::kto && s.recipe.objective.precompute_ref_log_probs;
  });
  refusals.add(mixes && spans.size() > 1, "objective.precompute_ref_log_probs = true",
               "the reference point of kto has the reference read prompts with completions of their batch, and phases "
               "and ramps have other batches",
               "that key = false, or one phase");
  const bool begins_heads = std::adjacent_find(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
                              return changes_heads(a.recipe, b.recipe);
                            }) != spans.end();
  refusals.add(
      begins_heads && r.train.precision == PrecisionChoice::fp16, "train.precision = \"fp16\"",
      "a phase begins another head of the model, whose averages count its own steps, and which of them overflow "
      "is not known before",
      "train.precision = \"bf16\"");
  refusals.add(begins_heads && r.train.on_spike != SpikeAction::none,
               fmt::format("train.on_spike = \"{}\"", r.train.on_spike),
               "a phase begins another head of the model, whose averages count its own steps, and which of them are "
               "left out is not known before",
               "train.on_spike = \"none\"");
  refusals.add(r.checkpoint.async_save && r.checkpoint.save_interval == 0, "checkpoint.async_save",
               "with save_interval = 0 there is only the last checkpoint, which is waited for",
               "checkpoint.async_save = false");
  refusals.add(r.checkpoint.async_save && r.run.backend == BackendKind::cuda, "checkpoint.async_save",
               "the copy would take a GPU's memory", "checkpoint.async_save = false");
  refuse_local_copies(r, refusals);
  refusals.add(r.checkpoint.keep_best > 0 && differ, fmt::format("checkpoint.keep_best = {}", r.checkpoint.keep_best),
               "phases have other lengths, held-out data or objectives, and their losses are not comparable",
               "checkpoint.keep_best = 0");
}

}  // namespace

std::string why_not_replayed(const Recipe& r) {
  if (r.parallel.dp == 1) return "at parallel.dp = 1 there is no other rank to do it";
  const std::vector<Hindrance> all = hindrances_of_replays(r);
  return all.empty() ? "" : all[0].why;
}

void check_supported(const Recipe& r) {
  const auto& p = r.parallel;
  Refusals refusals;
  refusals.add(p.ep > 1 && r.train.numerics == NumericsChoice::invariant, "train.numerics = \"invariant\"",
               fmt::format("parallel.ep = {} adds the gradients of an expert over the tokens of several ranks", p.ep),
               "train.numerics = \"fast\"");
  refusals.add(p.frozen_ep > 1 && r.train.numerics == NumericsChoice::invariant, "train.numerics = \"invariant\"",
               fmt::format("parallel.frozen_ep = {} multiplies the rows of several ranks with an expert", p.frozen_ep),
               "train.numerics = \"fast\", or parallel.frozen_ep = 1");
  refusals.add(p.cp > 1 && r.train.numerics == NumericsChoice::invariant, "train.numerics = \"invariant\"",
               fmt::format("parallel.cp = {} adds gradients within a micro-batch in an order of its own", p.cp),
               "train.numerics = \"fast\", or parallel.cp = 1");
  refusals.add(r.run.backend == BackendKind::cuda && r.train.numerics == NumericsChoice::invariant,
               "train.numerics = \"invariant\"",
               "products of a GPU's library may add in another order for another micro_batch_size",
               "train.numerics = \"fast\", which repeats bit for bit too, or run.backend = \"cpu\"");
  refusals.add(r.train.numerics == NumericsChoice::nondeterministic &&
                   (r.run.backend == BackendKind::cpu || r.run.backend == BackendKind::ref),
               "train.numerics = \"nondeterministic\"", "the kernels of cores repeat to the bit and have no faster way",
               "train.numerics = \"fast\", or run.backend = \"cuda\"");
  refusals.add(r.train.grad_reduce_dtype == ReduceDtype::bf16 && r.run.backend == BackendKind::ref,
               "train.grad_reduce_dtype = \"bf16\"", "backend ref computes, and adds gradients, in f64",
               "train.grad_reduce_dtype = \"f32\"");
  refusals.add(r.train.precision == PrecisionChoice::f64 && r.run.backend != BackendKind::ref,
               "train.precision = \"f64\"", "only the reference backend computes in it",
               "run.backend = \"ref\", or train.precision = \"f32\"");
  refusals.add(r.train.mtp_loss_coef > 0 && r.adapter.kind != AdapterKind::none,
               fmt::format("train.mtp_loss_coef = {}", r.train.mtp_loss_coef),
               fmt::format("adapter.kind = \"{}\": a module of multi-token prediction is not trained beside adapters "
                           "yet",
                           r.adapter.kind),
               "train.mtp_loss_coef = 0");
  refuse_beside_objective(r, refusals);
  refuse_mean_over_documents(r, refusals);
  refuse_beside_top(r, refusals);
  refuse_idle(r, refusals);
  refuse_spikes(r, refusals);
  refuse_replays(r, refusals);
  refuse_unequal_shares(r, refusals);
  refuse_autotune(r, refusals);
  refuse_samples(r, refusals);
  refuse_scores(r, refusals);
  refusals.throw_any();
  if (!has_phases(r)) return;
  for (PhaseSpan& span : phase_spans(r)) {
    span.recipe.optimizer.lr_scaling = LrScaling::none;  // which has made its learning rate
    span.recipe.checkpoint.local_neighbour = false;      // which is judged for all of them
    try {
      check_supported(span.recipe);
    } catch (const ConfigError& e) { throw ConfigError(fmt::format("{}: {}", to_string(span), e.what())); }
  }
}

}  // namespace weft
