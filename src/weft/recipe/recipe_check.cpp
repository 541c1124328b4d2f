// Checks a recipe as a whole: values that contradict each other, and settings that this version cannot run.
#include <algorithm>
#include <utility>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/base/nearest.h"
#include "weft/comm/process_mesh.h"
#include "weft/recipe/recipe_keys.h"
#include "weft/recipe/recipe_phases.h"
#include "weft/schedule/pipeline.h"

namespace weft {
namespace {

constexpr int64_t kMostMicroBatches = 1 << 20;  // a schedule is a list of them

class Conflicts {
 public:
  void unless(bool fits, Conflict conflict) {
    if (!fits) add(std::move(conflict));
  }
  void add(Conflict conflict) { all_.push_back(std::move(conflict)); }
  std::vector<Conflict> take() { return std::move(all_); }

 private:
  std::vector<Conflict> all_;
};

// The layout's number of ranks, at most kMostRanks + 1.
int64_t ranks_of(const Recipe::Parallel& p) {
  int64_t ranks = 1;
  for (const int64_t size : {p.dp, p.pp, p.cp, p.tp}) ranks = size > kMostRanks / ranks ? kMostRanks + 1 : ranks * size;
  return std::min(ranks, kMostRanks + 1);
}

bool dp_fits(const Recipe::Train& t, int64_t dp) {
  const int64_t micro_batches = t.global_batch_size / t.micro_batch_size;
  return micro_batches % dp == 0 && micro_batches / dp <= kMostMicroBatches;
}

// Divides the batch, and is a multiple of zero_shard_size, if that can be.
int64_t nearest_dp(const Recipe::Train& t, const Recipe::Parallel& p, int64_t most) {
  const int64_t shards = std::max<int64_t>(1, p.zero_shard_size);
  const auto both = nearest_where(p.dp, most, [&](int64_t dp) { return dp_fits(t, dp) && dp % shards == 0; });
  return both ? *both : nearest_where(p.dp, most, [&](int64_t dp) { return dp_fits(t, dp); }).value_or(1);
}

// The largest axes are cut until there are `most` ranks at most.
std::string fewer_ranks(const Recipe::Train& t, Recipe::Parallel p, int64_t most) {
  std::vector<std::pair<const char*, int64_t*>> axes = {{"dp", &p.dp}, {"tp", &p.tp}, {"pp", &p.pp}, {"cp", &p.cp}};
  std::stable_sort(axes.begin(), axes.end(), [](const auto& a, const auto& b) { return *a.second > *b.second; });
  std::string text;
  for (const auto& [axis, size] : axes) {
    if (ranks_of(p) <= most) break;
    const int64_t before = std::exchange(*size, 1), others = ranks_of(p);
    const int64_t room = std::max<int64_t>(1, most / others);
    *size = before;
    *size = size == &p.dp ? nearest_dp(t, p, room) : room;
    text += fmt::format("{}parallel.{} = {}", text.empty() ? "" : " and ", axis, *size);
  }
  return text;
}

void check_ranks(const Recipe::Train& t, const Recipe::Parallel& p, Conflicts& c) {
  const std::pair<const char*, int64_t> axes[] = {{"dp", p.dp}, {"tp", p.tp}, {"pp", p.pp}, {"cp", p.cp}};
  const auto largest =
      std::max_element(std::begin(axes), std::end(axes), [](auto& a, auto& b) { return a.second < b.second; });
  if (ranks_of(p) <= kMostRanks) return;
  c.add({.key = fmt::format("parallel.{}", largest->first),
         .others = {"parallel.dp", "parallel.tp", "parallel.pp", "parallel.cp"},
         .expected = fmt::format("a layout of at most {} ranks (dp {} x pp {} x cp {} x tp {})", kMostRanks, p.dp, p.pp,
                                 p.cp, p.tp),
         .nearest = fewer_ranks(t, p, kMostRanks)});
}

std::string nearest_batch(const Recipe::Train& t, const Recipe::Parallel& p) {
  const int64_t together = t.micro_batch_size * p.dp;
  if (double(together) > kMostCount)
    return fmt::format("train.micro_batch_size = 1 and train.global_batch_size = {}", p.dp);
  const int64_t below = t.global_batch_size / together * together, above = below + together;
  const bool down = below > 0 && (t.global_batch_size - below <= together / 2 || double(above) > kMostCount);
  return fmt::format("train.global_batch_size = {}", down ? below : above);
}

void check_batches(const Recipe::Train& t, const Recipe::Parallel& p, Conflicts& c) {
  if (t.global_batch_size % t.micro_batch_size != 0)
    c.add({.key = "train.global_batch_size",
           .others = {"train.micro_batch_size", "parallel.dp"},
           .expected =
               fmt::format("a multiple of train.micro_batch_size x parallel.dp = {} x {}", t.micro_batch_size, p.dp),
           .nearest = nearest_batch(t, p)});
  else if (t.global_batch_size / t.micro_batch_size % p.dp != 0 && ranks_of(p) <= kMostRanks)
    c.add({.key = "parallel.dp",
           .others = {"train.global_batch_size", "train.micro_batch_size"},
           .expected = fmt::format("a divisor of train.global_batch_size / train.micro_batch_size = {} / {}",
                                   t.global_batch_size, t.micro_batch_size),
           .nearest = fmt::format("parallel.dp = {}", nearest_dp(t, p, kMostRanks / (p.pp * p.cp * p.tp)))});
  c.unless(t.global_batch_size / t.micro_batch_size / p.dp <= kMostMicroBatches,
           {.key = "train.global_batch_size",
            .others = {"train.micro_batch_size", "parallel.dp"},
            .expected = fmt::format("at most {} micro-batches of a rank", kMostMicroBatches)});
}

void check_loss_scale(const Recipe::Train& t, Conflicts& c) {
  c.unless(t.min_loss_scale <= t.initial_loss_scale,
           {.key = "train.min_loss_scale",
            .others = {"train.initial_loss_scale"},
            .expected = fmt::format("at most train.initial_loss_scale = {}", t.initial_loss_scale)});
}

void check_reduction(const Recipe::Train& t, Conflicts& c) {
  c.unless(t.grad_reduce_dtype == ReduceDtype::f32 || t.numerics != NumericsChoice::invariant,
           {.key = "train.grad_reduce_dtype",
            .others = {"train.numerics"},
            .expected = "\"f32\" with train.numerics = \"invariant\", whose sums do not depend on the ranks"});
}

// Other shards would be right for another dp.
void check_shards(const Recipe::Train& t, const Recipe::Parallel& p, Conflicts& c) {
  const int64_t shards_at = p.zero_shard_size;
  if (shards_at == 0 || ranks_of(p) > kMostRanks || p.dp * p.cp % shards_at == 0 || !dp_fits(t, p.dp)) return;
  const int64_t ranks = p.dp * p.cp;
  const auto fits = [&](int64_t shards) { return ranks % shards == 0 && (shards > 1 || ranks == 1); };
  c.add({.key = "parallel.zero_shard_size",
         .others = p.cp > 1 ? std::vector<std::string>{"parallel.dp", "parallel.cp"}
                            : std::vector<std::string>{"parallel.dp"},
         .expected = p.cp > 1 ? fmt::format("a divisor of parallel.dp x parallel.cp = {} x {}, or 0", p.dp, p.cp)
                              : fmt::format("a divisor of parallel.dp = {}, or 0", p.dp),
         .nearest = fmt::format("parallel.zero_shard_size = {}",
                                p.zero_stage == 0 ? 0 : nearest_where(shards_at, ranks, fits).value_or(0))});
}

// Experts are dealt out over data ranks, of which ep has none of its own.
void check_experts(const Recipe::Parallel& p, Conflicts& c) {
  if (ranks_of(p) > kMostRanks || p.dp * p.cp % p.ep == 0) return;
  const int64_t ranks = p.dp * p.cp;
  c.add({.key = "parallel.ep",
         .others = {"parallel.dp", "parallel.cp"},
         .expected = fmt::format("a divisor of parallel.dp x parallel.cp = {} x {}", p.dp, p.cp),
         .nearest = fmt::format("parallel.ep = {}",
                                nearest_where(p.ep, ranks, [&](int64_t ep) { return ranks % ep == 0; }).value_or(1))});
}

// Each sequence is cut into two runs a rank.
void check_sequences(const Recipe::Train& t, const Recipe::Parallel& p, Conflicts& c) {
  if (p.cp == 1 || ranks_of(p) > kMostRanks || t.seq_length % (2 * p.cp) == 0) return;
  const int64_t runs = 2 * p.cp, below = t.seq_length / runs * runs;
  const bool down = below > 0 && t.seq_length - below <= runs / 2;
  c.add({.key = "train.seq_length",
         .others = {"parallel.cp"},
         .expected = fmt::format("a multiple of 2 x parallel.cp = 2 x {}", p.cp),
         .nearest = fmt::format("train.seq_length = {}", down ? below : below + runs)});
}

// Groups of neighbours are neither one rank nor all.
void check_head_groups(const Recipe::Parallel& p, Conflicts& c) {
  if (ranks_of(p) > kMostRanks || (p.cp == 1 && p.cp_a2a_size == 0)) return;
  if (p.cp_comm_type != CpCommType::a2a_p2p) {
    c.unless(p.cp_a2a_size == 0, {.key = "parallel.cp_a2a_size",
                                  .others = {"parallel.cp_comm_type"},
                                  .expected = "0 unless parallel.cp_comm_type = \"a2a+p2p\"",
                                  .nearest = "parallel.cp_a2a_size = 0"});
    return;
  }
  const auto fits = [&](int64_t size) { return size > 1 && size < p.cp && p.cp % size == 0; };
  const auto nearest = nearest_where(std::max<int64_t>(p.cp_a2a_size, 2), p.cp, fits);
  c.unless(fits(p.cp_a2a_size), {.key = "parallel.cp_a2a_size",
                                 .others = {"parallel.cp_comm_type", "parallel.cp"},
                                 .expected = fmt::format("a divisor of parallel.cp = {} between 1 and that", p.cp),
                                 .nearest = nearest ? fmt::format("parallel.cp_a2a_size = {}", *nearest)
                                                    : "parallel.cp_comm_type = \"p2p\" and parallel.cp_a2a_size = 0"});
}

// The names that it has, each once, in their order, and behind them the others.
std::string nearest_order(std::string order) {
  order = lower_ascii(order);
  std::vector<std::pair<size_t, std::string>> names;
  for (const char* name : {"tp", "cp", "ep", "dp", "pp"}) names.emplace_back(order.find(name), name);
  std::stable_sort(names.begin(), names.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string text;
  for (const auto& [at, name] : names) text += (text.empty() ? "" : "-") + name;
  return text;
}

void check_order(const Recipe::Parallel& p, Conflicts& c) {
  if (mesh_order(p.order)) return;
  c.add({.key = "parallel.order",
         .others = {},
         .expected = "the names tp, cp, ep, dp, pp, each once",
         .nearest = fmt::format("parallel.order = \"{}\"", nearest_order(p.order))});
}

void check_data(const Recipe::Data& d, const Recipe::Train& t, Conflicts& c) {
  c.unless(d.weights.empty() || d.weights.size() == d.train.size(),
           {.key = "data.weights",
            .others = {"data.train"},
            .expected = fmt::format("one number for each of the {} entries of data.train", d.train.size())});
  double all = d.weights.empty() ? 1 : 0;
  for (double w : d.weights) all += w;
  c.unless(all > 0, {.key = "data.weights", .others = {}, .expected = "a number above 0 among them"});
  c.unless(
      d.loss_mask.empty() || d.train.size() <= 1,
      {.key = "data.loss_mask",
       .others = {"data.train"},
       .expected = fmt::format("one file in data.train, to which the mask belongs; there are {}", d.train.size())});
  c.unless(
      d.valid.empty() || d.valid_fraction == 0,
      {.key = "data.valid_fraction", .others = {"data.valid"}, .expected = "0 beside data.valid: use one of them"});
  c.unless(t.eval_interval == 0 || !d.valid.empty() || d.valid_fraction > 0,
           {.key = "train.eval_interval",
            .others = {"data.valid", "data.valid_fraction"},
            .expected = "0, or data to evaluate: set data.valid or data.valid_fraction"});
}

void check_objective(const Recipe& r, Conflicts& c) {
  if (r.train.objective != ObjectiveKind::grpo) return;
  const auto& o = r.objective;
  const int64_t batch = r.train.global_batch_size, below = batch / o.group_size * o.group_size;
  c.unless(batch % o.group_size == 0,
           {.key = "train.global_batch_size",
            .others = {"objective.group_size"},
            .expected = fmt::format("whole groups: a multiple of objective.group_size = {}", o.group_size),
            .nearest = fmt::format("train.global_batch_size = {}", below > 0 ? below : o.group_size)});
  c.unless(o.group_size > 1, {.key = "objective.group_size",
                              .others = {"train.objective"},
                              .expected = "at least 2: a rollout is judged beside the others of its group"});
  c.unless(o.advantage_eps > 0 || o.advantage_std == AdvantageStd::none,
           {.key = "objective.advantage_eps",
            .others = {"objective.advantage_std"},
            .expected = "above 0: rewards of a group may all be equal, and then their deviation is 0"});
  c.unless(o.normalisation != LossNormalisation::constant || o.max_completion_length > 0,
           {.key = "objective.max_completion_length",
            .others = {"objective.normalisation"},
            .expected = "a whole number of at least 1 with objective.normalisation = \"constant\""});
}

void check_pipeline(const Recipe::Parallel& p, Conflicts& c) {
  const ScheduleKind kind = p.pipeline_schedule;
  const int64_t given = p.virtual_pipeline_parallel_size;
  const bool fits = given == 0 || chunks_fit(kind, given);
  c.unless(fits, {.key = "parallel.virtual_pipeline_parallel_size",
                  .others = {"parallel.pipeline_schedule"},
                  .expected = fmt::format("{} for schedule \"{}\", or 0", chunks_that_fit(kind), p.pipeline_schedule)});
  if (!fits || p.pipeline_layout.empty()) return;
  const int64_t chunks = given == 0 ? make_pipeline(kind, 1).num_chunks : given;
  c.unless(int64_t(p.pipeline_layout.size()) == p.pp * chunks,
           {.key = "parallel.pipeline_layout",
            .others = {"parallel.pp", "parallel.virtual_pipeline_parallel_size", "parallel.pipeline_schedule"},
            .expected = fmt::format("{} x {} numbers: stages x chunks of the model on each, or none: the most even",
                                    p.pp, chunks),
            .nearest = "parallel.pipeline_layout = []"});
}

void check_length(const Recipe::Train& t, Conflicts& c) {
  c.unless(t.train_iters > 0 || t.epochs > 0, {.key = "train.train_iters",
                                               .others = {"train.epochs"},
                                               .expected = "a whole number of at least 1, or train.epochs above 0"});
  c.unless(t.train_iters == 0 || t.epochs == 0,
           {.key = "train.epochs",
            .others = {"train.train_iters"},
            .expected = fmt::format("0 beside train.train_iters = {}: one of them says how long the run is, the other "
                                    "is 0 or left out",
                                    t.train_iters)});
}

void check_best(const Recipe& r, Conflicts& c) {
  const bool has_valid = !r.data.valid.empty() || r.data.valid_fraction > 0;
  c.unless(r.checkpoint.keep_best == 0 || (has_valid && r.train.eval_interval > 0),
           {.key = "checkpoint.keep_best",
            .others = {"data.valid", "data.valid_fraction", "train.eval_interval"},
            .expected = fmt::format("0, or held-out losses to choose by: set {}{}{}",
                                    has_valid ? "" : "data.valid or data.valid_fraction",
                                    has_valid || r.train.eval_interval > 0 ? "" : ", and ",
                                    r.train.eval_interval > 0 ? "" : "train.eval_interval")});
}

void check_learning_rate(const Recipe::Optimizer& o, int64_t train_iters, Conflicts& c) {
  c.unless(o.min_lr <= o.lr, {.key = "optimizer.min_lr",
                              .others = {"optimizer.lr"},
                              .expected = fmt::format("at most optimizer.lr = {}", o.lr)});
  const bool own_end = o.lr_decay_iters > 0;
  if (!own_end && train_iters == 0) return;  // judged when the steps of train.epochs are known
  const int64_t end = own_end ? o.lr_decay_iters : train_iters;
  const std::string end_key = own_end ? "optimizer.lr_decay_iters" : "train.train_iters";
  c.unless(o.lr_warmup_iters <= end, {.key = "optimizer.lr_warmup_iters",
                                      .others = {end_key},
                                      .expected = fmt::format("at most {} = {}", end_key, end)});
  c.unless(o.lr_decay_style != LrSchedule::Style::wsd ||
               (o.lr_wsd_decay_iters > 0 && o.lr_wsd_decay_iters <= end - std::min(end, o.lr_warmup_iters)),
           {.key = "optimizer.lr_wsd_decay_iters",
            .others = {"optimizer.lr_decay_style", "optimizer.lr_warmup_iters", end_key},
            .expected = fmt::format("at least 1 and at most the steps after warm-up, {} - {}, for style \"wsd\"", end,
                                    o.lr_warmup_iters)});
}

// What optimizer.lr_scaling makes of Adam's averages.
void check_averages(const Recipe::Optimizer& o, Conflicts& c) {
  const bool has_averages = o.name == OptimizerKind::adamw || o.name == OptimizerKind::adamw8bit;
  c.unless(o.lr_scaling != LrScaling::sqrt_adam || has_averages,
           {.key = "optimizer.lr_scaling",
            .others = {"optimizer.name"},
            .expected = fmt::format("another rule with optimizer.name = \"{}\": it also changes adam_beta1, adam_beta2 "
                                    "and adam_eps, which all of adamw and adamw8bit is made of",
                                    o.name),
            .nearest = "optimizer.lr_scaling = \"sqrt\""});
  const std::pair<const char*, double> betas[] = {{"optimizer.adam_beta1", o.adam_beta1},
                                                  {"optimizer.adam_beta2", o.adam_beta2}};
  for (const auto& [key, beta] : betas)
    c.unless(beta >= 0 && beta < 1,
             {.key = key,
              .others = {"optimizer.lr_scaling"},
              .expected = "at least 0 and below 1, and optimizer.lr_scaling = \"sqrt_adam\" multiplies 1 - beta by as "
                          "much as the batch has grown",
              .nearest = "a smaller train.global_batch_size there, or optimizer.lr_scaling = \"sqrt\""});
}

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
      return one_of({"teacher", "teacher_logits", "temperature", "alpha", "divergence"});
    case ObjectiveKind::dpo:
      return one_of({"loss_type", "beta", "label_smoothing", "average_logps", "reference", "precompute_ref_log_probs"});
    case ObjectiveKind::grpo:
      return one_of({"inner_updates", "group_size", "clip_eps_low", "clip_eps_high", "kl_beta", "normalisation",
                     "max_completion_length", "advantage_std", "advantage_eps", "reference",
                     "precompute_ref_log_probs"});
    case ObjectiveKind::ppo:
      return one_of(
          {"inner_updates", "clip_eps_low", "clip_eps_high", "gamma", "lambda", "value_clip", "value_coef", "kl_coef"});
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
  const std::string key = "objective.precompute_ref_log_probs = true", nearest = "that key = false";
  refusals.add(r.train.objective == ObjectiveKind::kto, key,
               "the reference point of kto has the reference read each prompt with the completion of the example "
               "before it, which is another one each epoch",
               nearest);
  refusals.add(r.moe.overflow == ExpertOverflow::drop, key,
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
  refuse_stored_reference(r, refusals);
  const bool scores = r.train.objective == ObjectiveKind::reward || r.train.objective == ObjectiveKind::ppo;
  refusals.add(scores && r.adapter.kind != AdapterKind::none, fmt::format("adapter.kind = \"{}\"", r.adapter.kind),
               fmt::format("{} trains a head that is no part of an adapter and would be frozen", objective),
               "adapter.kind = \"none\"");
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
    const std::string instead = key.section() == "data"
                                    ? fmt::format("{} reads {}", objective, data_key_of(r.train.objective))
                                    : (key.section() == "objective" ? objective : optimizer) + " has no such setting";
    refusals.add_idle(true, fmt::format("{} = {}", key.name, value), instead, fmt::format("{} = {}", key.name, usual));
  }
  const auto& o = r.objective;
  const bool ipo = o.loss_type == PreferenceLoss::ipo, dpo = r.train.objective == ObjectiveKind::dpo;
  refusals.add_idle(dpo && ipo && o.label_smoothing > 0,
                    fmt::format("objective.label_smoothing = {}", o.label_smoothing),
                    "objective.loss_type = \"ipo\" has none", "objective.label_smoothing = 0");
  refusals.add_idle(dpo && !ipo && o.average_logps, "objective.average_logps = true",
                    "objective.loss_type = \"sigmoid\" takes sums", "objective.average_logps = false");
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

}  // namespace

std::string_view data_key_of(ObjectiveKind objective) {
  switch (objective) {
    case ObjectiveKind::cross_entropy:
    case ObjectiveKind::distill:
      return "data.train";
    case ObjectiveKind::dpo:
    case ObjectiveKind::reward:
      return "data.pairs";
    case ObjectiveKind::grpo:
    case ObjectiveKind::ppo:
      return "data.rollouts";
    case ObjectiveKind::kto:
      break;
  }
  return "data.examples";
}

bool reads_tokens(ObjectiveKind objective) { return data_key_of(objective) == "data.train"; }

bool has_reference(ObjectiveKind objective) {
  return objective == ObjectiveKind::dpo || objective == ObjectiveKind::grpo || objective == ObjectiveKind::kto;
}

int64_t sequences_of_sample(const Recipe& recipe) {
  return data_key_of(recipe.train.objective) == "data.pairs" ? 2 : 1;
}

std::string fewer_ranks(const Recipe& recipe, int64_t most) { return fewer_ranks(recipe.train, recipe.parallel, most); }

std::vector<Conflict> conflicts(const Recipe& recipe) {
  Conflicts c;
  check_objective(recipe, c);
  check_ranks(recipe.train, recipe.parallel, c);
  check_batches(recipe.train, recipe.parallel, c);
  check_loss_scale(recipe.train, c);
  check_reduction(recipe.train, c);
  check_shards(recipe.train, recipe.parallel, c);
  check_experts(recipe.parallel, c);
  check_sequences(recipe.train, recipe.parallel, c);
  check_head_groups(recipe.parallel, c);
  check_order(recipe.parallel, c);
  check_data(recipe.data, recipe.train, c);
  check_pipeline(recipe.parallel, c);
  check_length(recipe.train, c);
  check_best(recipe, c);
  check_learning_rate(recipe.optimizer, recipe.train.train_iters, c);
  check_averages(recipe.optimizer, c);
  return c.take();
}

void check_supported(const Recipe& r) {
  const auto& p = r.parallel;
  Refusals refusals;
  refusals.add(p.ep > 1 && r.train.numerics == NumericsChoice::invariant, "train.numerics = \"invariant\"",
               fmt::format("parallel.ep = {} adds the gradients of an expert over the tokens of several ranks", p.ep),
               "train.numerics = \"fast\"");
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
  refuse_beside_objective(r, refusals);
  refuse_idle(r, refusals);
  refusals.throw_any();
  if (!has_phases(r)) return;
  for (PhaseSpan& span : phase_spans(r)) {
    span.recipe.optimizer.lr_scaling = LrScaling::none;  // which has made its learning rate
    try {
      check_supported(span.recipe);
    } catch (const ConfigError& e) { throw ConfigError(fmt::format("{}: {}", to_string(span), e.what())); }
  }
}

}  // namespace weft
