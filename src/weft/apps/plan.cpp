#include <iostream>
#include <nlohmann/json.hpp>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/base/error.h"
#include "weft/plan/run_plan.h"

namespace weft {

int run_plan(const PlanOptions& options) {
  if (options.recipe.empty()) throw ConfigError("a recipe is missing, as in `weft plan recipe.toml`");
  const Recipe recipe = parse_recipe_file(options.recipe, options.overrides);
  check_supported(recipe);
  const Machine machine = machine_for(recipe);
  const RunPlan plan = plan_run(recipe, *machine.workspace_model);
  const MemoryPlan& m = plan.memory;
  if (options.json) {
    nlohmann::json json{{"num_params", m.num_params},
                        {"model_flops_per_step", m.model_flops},
                        {"hardware_flops_per_step", m.hardware_flops},
                        {"total_bytes", m.total_bytes()}};
    for (const auto& row : m.rows())
      json["memory"][row.name] = {{"count", row.count}, {"bytes_each", row.bytes_each}, {"bytes", row.bytes()}};
    if (options.schedule) json["schedule"] = to_string(plan.step.schedule);
    std::cout << json.dump(1) << "\n";
    return kExitOk;
  }
  std::cout << to_string(m)
            << fmt::format("\n{} parameters; {:.4g} GFLOP a step ({:.4g} with what is computed again); {}\n",
                           m.num_params, m.model_flops / 1e9, m.hardware_flops / 1e9, machine.description);
  if (options.schedule) std::cout << "schedule: " << to_string(plan.step.schedule) << "\n";
  return kExitOk;
}

}  // namespace weft
