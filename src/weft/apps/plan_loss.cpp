// `weft plan loss`: what a loss costs, by a law of loss and the forecast.
#include <iostream>
#include <nlohmann/json.hpp>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/recorded_run.h"
#include "weft/base/error.h"
#include "weft/base/threads.h"
#include "weft/forecast/cluster.h"
#include "weft/forecast/loss_plan.h"
#include "weft/forecast/scaling_law_fit.h"
#include "weft/plan/layout.h"

namespace weft {
namespace {

LossLaw law_for(const PlanLossOptions& options, const std::vector<LossModel>& models) {
  std::vector<LawPoint> points;
  for (const std::string& run : options.runs) points.push_back(law_point(read_recorded_run(run)));
  for (const LossModel& m : models) {
    const bool experts = m.config.spec.has_experts();
    if (points.empty() && experts)
      throw ConfigError(fmt::format(
          "{}: the published law is of dense models; the nearest that works: --runs, with runs of models with experts",
          m.name));
    if (!points.empty() && points[0].experts != experts)
      throw ConfigError(fmt::format("{} and {}: one of the two has experts, and a law is of models of one kind", m.name,
                                    points[0].run));
  }
  return points.empty() ? published_law() : fit_law(points);
}

LossAsk ask_of(const PlanLossOptions& options, const Recipe& recipe, const ClusterSpec& cluster) {
  if (options.target == 0 && options.budget == 0 && options.deadline.empty())
    throw ConfigError("weft plan loss needs a question: --target 2.6, --budget 20000, --deadline 12d");
  LossAsk ask{.target = options.target, .budget = options.budget, .device_counts = {}};
  if (!options.deadline.empty()) ask.deadline_s = seconds_of_duration(options.deadline);
  if (!options.ranks.empty())
    ask.device_counts = device_counts_of(options.ranks, cluster);
  else
    ask.device_counts = {cluster.num_devices > 0 ? cluster.num_devices : mesh_sizes_of(recipe).world()};
  ask.reserve_bytes = usual_reserve(cluster);
  ask.threads = usable_cores();
  return ask;
}

}  // namespace

int run_plan_loss(const PlanLossOptions& options) {
  if (options.recipe.empty()) throw ConfigError("a recipe is missing, as in `weft plan loss recipe.toml`");
  const ClusterSpec cluster = read_cluster(options.cluster);
  const Recipe recipe = read_recipe(options.recipe, options.overrides, true, &cluster);
  const LossAsk ask = ask_of(options, recipe, cluster);
  std::vector<LossModel> models{{recipe.model.path, read_hf_config(recipe.model.path)}};
  for (const std::string& model : options.models) models.push_back({model, read_hf_config(model)});
  const LossLaw law = law_for(options, models);
  const LossPlan plan = plan_losses(recipe, models, cluster, Profiles::built_in(), law, ask);
  std::cout << (options.json ? to_json(plan, ask).dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"
                             : to_string(plan, ask, cluster));
  for (const LossRow& row : plan.rows)
    if (row.why_not.empty()) return kExitOk;
  return kExitFailure;
}

}  // namespace weft
