#include "weft/train/rank_plan.h"

#include "weft/comm/agree.h"

namespace weft {
namespace {

std::string levels_text(const RecomputeChoice& choice) {
  std::string text;
  for (const BlockRecompute again : choice.blocks) text += char('0' + int(again));
  return text;
}

// What does not fit on one rank ends all of them, with its message.
RunPlan planned_by_all(const Recipe& recipe, const WorkspaceModel& workspace, Communicator& world) {
  std::optional<RunPlan> plan;
  std::string mine;
  try {
    plan = plan_run(recipe, workspace, world.rank());
  } catch (const ConfigError& e) { mine = e.what(); }
  const std::string refusal = first_text(world, mine);
  if (!refusal.empty()) throw ConfigError(refusal);
  return std::move(*plan);
}

}  // namespace

RunPlan plan_of_rank(const Recipe& recipe, const WorkspaceModel& workspace, Communicator& world) {
  if (recipe.parallel.recompute != RecomputeKind::budget) return plan_run(recipe, workspace, world.rank());
  RunPlan plan = planned_by_all(recipe, workspace, world);
  const std::string mine = levels_text(plan.recompute);
  const std::string first = first_text(world, world.rank() == 0 ? mine : "");
  const std::string other = first_text(world, mine == first ? "" : fmt::format("{}", world.rank()));
  if (!other.empty())
    throw ConfigError(fmt::format(
        "parallel.recompute = \"budget\" cannot run: rank {} would compute other blocks again than rank 0, as its "
        "kernels "
        "need other temporaries; the nearest that works: the same run.threads and processors for all ranks, or "
        "parallel.recompute = \"full\" and no parallel.memory_budget",
        other));
  return plan;
}

}  // namespace weft
