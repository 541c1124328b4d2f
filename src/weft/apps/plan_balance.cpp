#include "weft/apps/plan_balance.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "weft/apps/backends.h"
#include "weft/apps/commands.h"
#include "weft/apps/written_recipe.h"
#include "weft/base/error.h"
#include "weft/forecast/layer_trace.h"
#include "weft/plan/layout_plan.h"

namespace weft {
namespace {

constexpr double kBytesOfMiB = 1 << 20;

Recipe with_cut(const Recipe& recipe, const BlockLayout& blocks) {
  Recipe cut = recipe;
  cut.parallel.pipeline_layout = blocks;
  return cut;
}

// Of the fullest rank, as planned.
int64_t memory_of(const Recipe& recipe, const Machine& machine) {
  return plan_layout(recipe, *machine.workspace_model).classes[0].plan.total_bytes();
}

}  // namespace

int run_plan_balance(const PlanBalanceOptions& o) {
  if (o.recipe.empty())
    throw ConfigError("a recipe is missing, as in `weft plan balance recipe.toml --trace step.json`");
  if (o.again && o.write.empty()) throw ConfigError("--again replaces the file of --write: it needs one");
  require_written_recipe(o.write, o.recipe, o.again);
  const Recipe recipe = read_recipe(o.recipe, o.overrides);
  check_supported(recipe);
  const LayerTrace trace = read_layer_trace(o.trace);
  const ModelSpec model = prepare_run(recipe, 0).model;
  require_trace_of(trace, recipe, model);
  const Pipeline pipeline = pipeline_of(recipe);
  const int64_t micro_batches = num_micro_batches_of(recipe);
  const TracedCut now = cut_as_traced(trace, model, pipeline, micro_batches, block_layout_of(recipe, model));
  const auto better = better_cut_as_traced(trace, model, pipeline, micro_batches, now.blocks);
  const Machine machine = machine_to_plan_for(recipe);
  const int64_t bytes = memory_of(recipe, machine),
                better_bytes = better ? memory_of(with_cut(recipe, better->blocks), machine) : 0;
  if (better && !o.write.empty())
    write_planned_recipe(o.write, with_cut(recipe, better->blocks), o.recipe, o.overrides);
  if (o.json) {
    nlohmann::json json = to_json(trace, now, better);
    json["now"]["memory_bytes"] = bytes;
    if (better) json["better"]["memory_bytes"] = better_bytes;
    std::cout << json.dump(1) << "\n";
    return kExitOk;
  }
  std::cout << to_string(trace, now, better)
            << fmt::format("memory of the fullest rank: {:.1f} MiB planned", double(bytes) / kBytesOfMiB)
            << (better ? fmt::format(", and {:.1f} MiB\n", double(better_bytes) / kBytesOfMiB) : "\n");
  if (!better && !o.write.empty()) std::cout << fmt::format("{} was not written\n", o.write);
  return kExitOk;
}

}  // namespace weft
