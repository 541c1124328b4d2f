// Checks a recipe as a whole: values that contradict each other. What cannot run: recipe_supported.cpp.
#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "weft/base/ascii.h"
#include "weft/base/byte_size.h"
#include "weft/base/error.h"
#include "weft/base/nearest.h"
#include "weft/comm/process_mesh.h"
#include "weft/recipe/recipe_keys.h"
#include "weft/recipe/recipe_phases.h"
#include "weft/schedule/pipeline.h"
#include "weft/schedule/shares.h"

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

// Those that were given, cut to the batch and to the ranks that there are.
std::string nearest_shares(const Recipe::Train& t, const Recipe::Parallel& p) {
  const int64_t all = t.global_batch_size / t.micro_batch_size;
  if (p.dp > all || ranks_of(p) > kMostRanks) return "parallel.micro_batches = [] and parallel.dp = 1";
  std::vector<double> weights(p.micro_batches.begin(), p.micro_batches.end());
  weights.resize(size_t(p.dp), weights.back());
  return fmt::format("parallel.micro_batches = {}", text_of_shares(shares_by_weight(weights, all)));
}

void check_shares(const Recipe::Train& t, const Recipe::Parallel& p, Conflicts& c) {
  const auto& shares = p.micro_batches;
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);  // of any numbers
  c.unless(int64_t(shares.size()) == p.dp && sum == double(t.global_batch_size / t.micro_batch_size),
           {.key = "parallel.micro_batches",
            .others = {"parallel.dp", "train.global_batch_size", "train.micro_batch_size"},
            .expected = fmt::format("a number for each of parallel.dp = {} ranks, together train.global_batch_size / "
                                    "train.micro_batch_size = {} / {}, or none: equal shares",
                                    p.dp, t.global_batch_size, t.micro_batch_size),
            .nearest = nearest_shares(t, p)});
  c.unless(*std::max_element(shares.begin(), shares.end()) <= kMostMicroBatches,
           {.key = "parallel.micro_batches",
            .others = {},
            .expected = fmt::format("at most {} micro-batches of a rank", kMostMicroBatches)});
}

void check_batches(const Recipe::Train& t, const Recipe::Parallel& p, Conflicts& c) {
  if (t.global_batch_size % t.micro_batch_size != 0)
    c.add({.key = "train.global_batch_size",
           .others = {"train.micro_batch_size", "parallel.dp"},
           .expected =
               fmt::format("a multiple of train.micro_batch_size x parallel.dp = {} x {}", t.micro_batch_size, p.dp),
           .nearest = nearest_batch(t, p)});
  else if (!p.micro_batches.empty())
    return check_shares(t, p, c);
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
  if (shards_at == 0 || ranks_of(p) > kMostRanks || p.dp * p.cp % shards_at == 0) return;
  if (p.micro_batches.empty() && !dp_fits(t, p.dp)) return;
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

// What is dealt out over the data ranks divides their number. 0, of frozen models: as of the trained one.
void check_dealt_out(const Recipe::Parallel& p, Conflicts& c) {
  if (ranks_of(p) > kMostRanks) return;
  const int64_t ranks = p.dp * p.cp;
  const auto judge = [&](const char* key, int64_t size, int64_t least, bool may_be_0) {
    if (size == 0 || ranks % size == 0) return;
    const auto fits = [&](int64_t n) { return n >= least && ranks % n == 0; };
    c.add({.key = key,
           .others = {"parallel.dp", "parallel.cp"},
           .expected =
               fmt::format("a divisor of parallel.dp x parallel.cp = {} x {}{}", p.dp, p.cp, may_be_0 ? ", or 0" : ""),
           .nearest = fmt::format("{} = {}", key, nearest_where(size, ranks, fits).value_or(0))});
  };
  judge("parallel.ep", p.ep, 1, false);
  judge("parallel.frozen_ep", p.frozen_ep, 1, true);
  judge("parallel.frozen_shard_size", p.frozen_shard_size, 2, true);
}

// A teacher with axes of its own is on all ranks, and cuts each sequence as a student does.
void check_teacher_axes(const Recipe& r, Conflicts& c) {
  const auto& p = r.parallel;
  if (r.objective.top_k == 0 || ranks_of(p) > kMostRanks) return;
  const int64_t ranks = ranks_of(p);
  const int64_t tp = p.teacher_tp > 0 ? p.teacher_tp : p.tp, pp = p.teacher_pp > 0 ? p.teacher_pp : p.pp,
                cp = p.teacher_cp > 0 ? p.teacher_cp : p.cp;
  const std::vector<std::string> others{"parallel.teacher_pp", "parallel.teacher_cp", "parallel.dp",
                                        "parallel.tp",         "parallel.pp",         "parallel.cp"};
  if (tp > ranks || pp > ranks || cp > ranks || ranks % (tp * pp * cp) != 0) {
    const int64_t fit_tp = std::gcd(tp, ranks), fit_pp = std::gcd(pp, ranks / fit_tp),
                  fit_cp = std::gcd(cp, ranks / fit_tp / fit_pp);
    return c.add(
        {.key = "parallel.teacher_tp",
         .others = others,
         .expected = fmt::format("tp x pp x cp of the teacher, {} x {} x {}, to divide the {} ranks of the run", tp, pp,
                                 cp, ranks),
         .nearest = fmt::format("parallel.teacher_tp = {} and parallel.teacher_pp = {} and parallel.teacher_cp = {}",
                                fit_tp, fit_pp, fit_cp)});
  }
  const auto fits = [&](int64_t n) {
    return ranks % (tp * pp * n) == 0 && (n == 1 || r.train.seq_length % (2 * n) == 0);
  };
  if (fits(cp)) return;
  c.add({.key = "train.seq_length",
         .others = {"parallel.teacher_cp", "parallel.cp"},
         .expected = fmt::format("a multiple of 2 x the teacher's cp = 2 x {}", cp),
         .nearest = fmt::format("parallel.teacher_cp = {}", nearest_where(cp, ranks, fits).value_or(1))});
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

void check_data(const Recipe::Data& d, const Recipe::Train& t, const std::vector<Recipe::Phase>& phases, Conflicts& c) {
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
  const bool later = std::any_of(phases.begin(), phases.end(), [](const Recipe::Phase& p) {
    return std::any_of(p.settings.begin(), p.settings.end(), [](const auto& s) { return s.first == "data.valid"; });
  });
  c.unless(t.eval_interval == 0 || !d.valid.empty() || d.valid_fraction > 0 || later,
           {.key = "train.eval_interval",
            .others = {"data.valid", "data.valid_fraction"},
            .expected = "0, or data to evaluate: set data.valid or data.valid_fraction"});
  c.unless((t.sample_interval > 0) == !t.sample_prompts.empty(),
           {.key = "train.sample_interval",
            .others = {"train.sample_prompts"},
            .expected = "a number of steps with train.sample_prompts, with which the texts begin; 0 without"});
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

void check_memory_budget(const Recipe::Parallel& p, Conflicts& c) {
  const bool has_budget = p.recompute == RecomputeKind::budget;
  c.unless(has_budget || p.memory_budget.empty(), {.key = "parallel.memory_budget",
                                                   .others = {"parallel.recompute"},
                                                   .expected = "empty unless parallel.recompute = \"budget\"",
                                                   .nearest = "parallel.recompute = \"budget\""});
  c.unless(!has_budget || byte_size_of(p.memory_budget),
           {.key = "parallel.memory_budget",
            .others = {"parallel.recompute"},
            .expected = "the most that a rank's plan may take, as \"60GiB\" or \"800MiB\", with parallel.recompute = "
                        "\"budget\""});
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

void check_tasks(const Recipe::Eval& e, Conflicts& c) {
  const Recipe::Eval none;
  const auto needs_tasks = [&](const char* key, bool given) {
    c.unless(!given || !e.tasks.empty(), {.key = key,
                                          .others = {"eval.tasks"},
                                          .expected = "its default without eval.tasks, which names what is scored"});
  };
  needs_tasks("eval.interval", e.interval != none.interval);
  needs_tasks("eval.limit", e.limit != none.limit);
  needs_tasks("eval.num_fewshot", e.num_fewshot != none.num_fewshot);
  needs_tasks("eval.fewshot_from", e.fewshot_from != none.fewshot_from);
  needs_tasks("eval.max_tokens", e.max_tokens != none.max_tokens);
  needs_tasks("eval.bad_words", e.bad_words != none.bad_words);
}

void check_fleet(const Recipe& r, Conflicts& c) {
  const Recipe::Fleet& f = r.fleet;
  const bool knows = !f.available.empty() || !f.hosts.empty();
  const auto needs_to_know = [&](const char* key, bool given) {
    c.unless(!given || knows, {.key = key,
                               .others = {"fleet.available", "fleet.hosts"},
                               .expected = "its default without fleet.available or fleet.hosts, which tell what ranks "
                                           "there are"});
  };
  needs_to_know("fleet.min_ranks", f.min_ranks > 0);
  needs_to_know("fleet.max_ranks", f.max_ranks > 0);
  needs_to_know("fleet.cluster", !f.cluster.empty());
  c.unless(f.max_ranks == 0 || f.min_ranks <= f.max_ranks,
           {.key = "fleet.min_ranks",
            .others = {"fleet.max_ranks"},
            .expected = fmt::format("at most fleet.max_ranks = {}", f.max_ranks)});
  c.unless(f.available.empty() || f.hosts.empty(),
           {.key = "fleet.hosts", .others = {"fleet.available"}, .expected = "empty beside fleet.available"});
  c.unless(f.hosts.empty() || r.run.ranks == RanksKind::mpi, {.key = "fleet.hosts",
                                                              .others = {"run.ranks"},
                                                              .expected = "empty, or ranks that are processes",
                                                              .nearest = "run.ranks = \"mpi\""});
  const bool tp = std::find(f.may_change.begin(), f.may_change.end(), "tp") != f.may_change.end();
  c.unless(!knows || !tp || r.train.numerics != NumericsChoice::invariant,
           {.key = "fleet.may_change",
            .others = {"train.numerics"},
            .expected = "without \"tp\" with train.numerics = \"invariant\": another tp has other last bits"});
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

bool has_unequal_shares(const Recipe::Parallel& p) {
  return std::adjacent_find(p.micro_batches.begin(), p.micro_batches.end(), std::not_equal_to<>()) !=
         p.micro_batches.end();
}

bool reads_tokens(ObjectiveKind objective) { return data_key_of(objective) == "data.train"; }

bool has_reference(ObjectiveKind objective) {
  return objective == ObjectiveKind::dpo || objective == ObjectiveKind::grpo || objective == ObjectiveKind::kto;
}

bool has_frozen_model(const Recipe& r) {
  const auto& o = r.objective;
  if (r.train.objective == ObjectiveKind::distill) return o.teacher_logits.empty();
  const bool is_base = r.adapter.kind != AdapterKind::none && r.adapter.path.empty() && o.reference.empty();
  return has_reference(r.train.objective) && (!is_base || o.precompute_ref_log_probs);
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
  check_dealt_out(recipe.parallel, c);
  check_teacher_axes(recipe, c);
  check_sequences(recipe.train, recipe.parallel, c);
  check_head_groups(recipe.parallel, c);
  check_order(recipe.parallel, c);
  check_data(recipe.data, recipe.train, recipe.phases, c);
  check_pipeline(recipe.parallel, c);
  check_memory_budget(recipe.parallel, c);
  check_length(recipe.train, c);
  check_best(recipe, c);
  check_tasks(recipe.eval, c);
  check_fleet(recipe, c);
  check_learning_rate(recipe.optimizer, recipe.train.train_iters, c);
  check_averages(recipe.optimizer, c);
  return c.take();
}

}  // namespace weft
