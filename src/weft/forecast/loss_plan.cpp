#include "weft/forecast/loss_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "weft/base/error.h"
#include "weft/forecast/best_layouts.h"
#include "weft/forecast/layout_bounds.h"
#include "weft/recipe/recipe_keys.h"

namespace weft {
namespace {

constexpr int64_t kBatchGrows = 4, kMostGrown = 64;
constexpr double kHelpsTime = 0.05, kHelpsLoss = 0.002;  // parts, of which less is no help
constexpr int kLossRounds = 60;                          // of a loss and the batch that is critical at it
constexpr double kForEver = std::numeric_limits<double>::infinity();

// The loss after so many tokens in batches, where what a batch wastes depends on that loss. Each round's is higher than
// the one before, and none is above that of all tokens wasted.
double loss_in_batches(const ScalingLaw& law, double parameters, double tokens, double batch_tokens) {
  double loss = law.loss(parameters, tokens);
  for (int round = 0; round < kLossRounds; ++round)
    loss = law.loss(parameters, tokens_of_small_batches(tokens, batch_tokens, loss));
  return loss;
}

void add_target(const LossLaw& law, const LossAsk& ask, double price_per_s, LossRow& row) {
  const auto tokens = [&](const ScalingLaw& l) {
    return tokens_in_batches(l.tokens_to(ask.target, row.parameters), row.batch_tokens, ask.target);
  };
  const double token_s = row.step_s * row.slower / row.batch_tokens;
  row.tokens = tokens(law.best);
  row.run_s = row.tokens * token_s;
  row.price = price_per_s > 0 ? row.run_s * price_per_s : 0;
  row.run_range = range_of(law, [&](const ScalingLaw& l) { return tokens(l) * token_s; });
}

void add_limits(const LossLaw& law, const LossAsk& ask, double price_per_s, LossRow& row) {
  row.spent_s = kForEver;
  if (ask.budget > 0) row.spent_s = ask.budget / price_per_s;
  if (ask.deadline_s > 0) row.spent_s = std::min(row.spent_s, ask.deadline_s);
  row.spent_tokens = row.spent_s / (row.step_s * row.slower) * row.batch_tokens;
  const auto loss = [&](const ScalingLaw& l) {
    return loss_in_batches(l, row.parameters, row.spent_tokens, row.batch_tokens);
  };
  row.loss = loss(law.best);
  row.loss_range = range_of(law, loss);
}

// What is less where a row is better.
double value_of(const LossAsk& ask, const LossRow& row) { return ask.target > 0 ? row.run_s : row.loss; }

double slower_by_failures(const RunForecast& f) {
  if (f.cluster.failures_per_device_hour <= 0) return 1;
  const FailureSpec failures = f.failures();
  return expected_run_s(1, best_save_interval(failures), failures);
}

class LossPlanner {
 public:
  LossPlanner(const Recipe& recipe, const ClusterSpec& cluster, const Profiles& profiles, const LossLaw& law,
              const LossAsk& ask)
      : recipe_(recipe), cluster_(cluster), profiles_(profiles), law_(law), ask_(ask) {}

  // `known`: of this model.
  LossRow row_of(const LossModel& model, int64_t devices, SmallRuns& known) const {
    LossRow best{.model = model.name, .parameters = parameters_of(model.config.spec), .devices = devices};
    bool found = false;
    double least_token_s = 0;
    for (int64_t times = 1; times <= kMostGrown; times *= kBatchGrows) {
      if (double(recipe_.train.global_batch_size) > kMostCount / double(times)) break;
      const int64_t batch = times * recipe_.train.global_batch_size;
      if (found && !may_be_better(best, batch, least_token_s)) break;
      LossRow one = best;
      one.why_not.clear();
      least_token_s = std::max(least_token_s, try_batch(model, batch, one, known));
      if (!one.why_not.empty()) {
        if (!found) best.why_not = one.why_not;
        continue;  // a larger batch may have sequences for all of the devices
      }
      if (found && value_of(ask_, one) >= value_of(ask_, best)) break;
      best = one;
      found = true;
    }
    return best;
  }

 private:
  // Whether a larger batch could be, if all of a step were products at the best rate. No search is needed to rule it
  // out.
  bool may_be_better(const LossRow& best, int64_t batch, double least_token_s) const {
    LossRow least = best;
    least.batch_tokens = best.batch_tokens / double(best.batch) * double(batch);
    least.step_s = least_token_s * least.batch_tokens;
    least.slower = 1;
    add_asked(least);
    return value_of(ask_, least) < value_of(ask_, best);
  }

  void add_asked(LossRow& row) const {
    const double price_per_s = cluster_.price_per_device_hour / 3600 * double(row.devices);
    if (ask_.target > 0) add_target(law_, ask_, price_per_s, row);
    if (ask_.budget > 0 || ask_.deadline_s > 0) add_limits(law_, ask_, price_per_s, row);
  }

  // What a token takes at least on so many devices, whatever the batch: its arithmetic at the best rate. 0 where no
  // layout fits.
  double try_batch(const LossModel& model, int64_t batch, LossRow& row, SmallRuns& known) const {
    Recipe recipe = recipe_;
    recipe.train.global_batch_size = batch;
    const SearchResult result = best_layouts(
        recipe, model.config, cluster_, profiles_,
        {.device_counts = {row.devices}, .most = 1, .reserve_bytes = ask_.reserve_bytes, .threads = ask_.threads},
        known);
    if (result.best.empty()) {
      row.why_not = result.nearest.empty() ? "the model cannot be cut to so many devices" : result.nearest;
      return 0;
    }
    row.layout = result.best[0].layout;
    row.batch = batch;
    row.step_s = result.best[0].step.step_s;
    row.memory_bytes = result.best[0].memory_bytes;
    const RunForecast forecast = forecast_run(with_choice(recipe, row.layout), model.config, cluster_, profiles_);
    row.batch_tokens = forecast.work.tokens;
    row.slower = slower_by_failures(forecast);
    add_asked(row);
    const double rate = best_rate(cluster_.device, forecast.profile);
    return kSurePart * forecast.work.arithmetic.model_flops / rate / row.batch_tokens;
  }

  const Recipe& recipe_;
  const ClusterSpec& cluster_;
  const Profiles& profiles_;
  const LossLaw& law_;
  const LossAsk& ask_;
};

bool helps(const LossAsk& ask, const LossRow& more, const LossRow& fewer) {
  const double least = ask.target > 0 ? kHelpsTime : kHelpsLoss;
  return value_of(ask, more) < (1 - least) * value_of(ask, fewer);
}

// Of one model's rows, or nothing where the last devices still help.
std::string no_help_of(const LossAsk& ask, const std::vector<LossRow>& all) {
  std::vector<LossRow> rows;
  for (const LossRow& r : all)
    if (r.why_not.empty() && std::isfinite(value_of(ask, r))) rows.push_back(r);
  for (size_t i = 0; i + 1 < rows.size(); ++i) {
    if (std::any_of(rows.begin() + long(i) + 1, rows.end(), [&](const LossRow& r) { return helps(ask, r, rows[i]); }))
      continue;
    const LossRow &enough = rows[i], &more = rows[i + 1];
    const std::string what =
        ask.target > 0
            ? fmt::format("{} take {:+.1f} % of its time", more.devices, (more.run_s / enough.run_s - 1) * 100)
            : fmt::format("{} reach {:.4f} in place of {:.4f}", more.devices, more.loss, enough.loss);
    return fmt::format("{}: more than {} devices no longer help: {}, with batches of {:.2f} of the critical size",
                       enough.model, enough.devices, what,
                       more.batch_tokens / critical_batch_tokens(ask.target > 0 ? ask.target : more.loss));
  }
  return "";
}

void check(const Recipe& recipe, const std::vector<LossModel>& models, const ClusterSpec& cluster, const LossAsk& ask) {
  WEFT_CHECK(ask.target > 0 || ask.budget > 0 || ask.deadline_s > 0, "a plan of losses that asks nothing");
  WEFT_CHECK(!ask.device_counts.empty() && !models.empty(), "a plan of losses without devices or models");
  const auto refuse = [](const char* key, const std::string& is, const char* nearest) {
    throw ConfigError(
        fmt::format("{} = \"{}\": a law of loss is of models that begin with random weights and learn to foretell "
                    "text; the nearest that works: {}",
                    key, is, nearest));
  };
  if (recipe.model.init != InitChoice::random) refuse("model.init", "pretrained", "model.init = \"random\"");
  if (recipe.adapter.kind != AdapterKind::none)
    refuse("adapter.kind", fmt::format("{}", name_of(recipe.adapter.kind)), "adapter.kind = \"none\"");
  if (recipe.train.objective != ObjectiveKind::cross_entropy)
    refuse("train.objective", fmt::format("{}", name_of(recipe.train.objective)),
           "train.objective = \"cross_entropy\"");
  if (ask.budget > 0 && cluster.price_per_device_hour <= 0)
    throw ConfigError("--budget needs a price: price.per_device_hour in the cluster's file");
}

}  // namespace

LossPlan plan_losses(const Recipe& recipe, const std::vector<LossModel>& models, const ClusterSpec& cluster,
                     const Profiles& profiles, const LossLaw& law, const LossAsk& ask) {
  check(recipe, models, cluster, ask);
  LossPlan plan{.law = law, .rows = {}};
  const LossPlanner planner(recipe, cluster, profiles, law, ask);
  for (const LossModel& model : models) {
    std::vector<LossRow> rows;
    SmallRuns known;  // batches and numbers of devices share most of what small models tell
    for (const int64_t devices : ask.device_counts) rows.push_back(planner.row_of(model, devices, known));
    if (std::string text = no_help_of(ask, rows); !text.empty()) plan.no_help.push_back(std::move(text));
    plan.rows.insert(plan.rows.end(), rows.begin(), rows.end());
  }
  return plan;
}

}  // namespace weft
