#include "weft/train/rank_run.h"

#include <utility>

#include "weft/base/error.h"

namespace weft {

namespace {

PersistentArenas arenas_of(const MemoryPlan& plan, const Machine& machine, std::optional<KeptArenas> kept) {
  if (kept) return PersistentArenas(plan.persistent, machine.memory, std::move(*kept));
  return PersistentArenas(plan.persistent, machine.memory);
}

}  // namespace

RankRun::RankRun(RunPlan of_rank, const Machine& machine, const ProcessMesh& of_mesh, const DecorateBackend& decorate)
    : RankRun(std::move(of_rank), machine, of_mesh, decorate, std::nullopt) {}

RankRun::RankRun(RunPlan of_rank, const Machine& machine, const ProcessMesh& of_mesh, std::optional<KeptArenas> kept)
    : RankRun(std::move(of_rank), machine, of_mesh, {}, std::move(kept)) {}

KeptArenas RankRun::take_kept() {
  backend.wait_all();
  return arenas.take_kept();
}

RankRun::RankRun(RunPlan of_rank, const Machine& machine, const ProcessMesh& of_mesh, const DecorateBackend& decorate,
                 std::optional<KeptArenas> kept)
    : RankBackend(machine, of_mesh, of_rank.memory.workspace, decorate),
      plan(std::move(of_rank)),
      arenas(arenas_of(plan.memory, machine, std::move(kept))),
      state(plan.model, plan.step, *plan.optimizer, arenas, mesh),
      late_(machine.late),
      executor(state, plan.step, plan.memory, {backend, mesh, machine.memory, machine.threads}) {}

// The workspace may be used less: a larger evaluation may own its peak; the plan counts whole sequences, where a device
// may attend to a batch's documents by other kernels, and ranks that gather keys to fewer keys at once; and experts may
// have fewer rows than there is room for.
void RankRun::check_used() const {
  executor.check_used();
  WEFT_CHECK(arenas.peak() == plan.memory.persistent, "weights, gradients and state use {} bytes, {} planned",
             arenas.peak().total(), plan.memory.persistent.total());
  const bool gathers = plan.step.model.layers.context.keys == ContextPlan::Keys::gathered;
  const auto apart = plan.step.teacher ? plan.step.teacher->apart : nullptr;
  const bool teacher_gathers =
      apart && (apart->model.layers.context.keys == ContextPlan::Keys::gathered || apart->mesh.ep > 1);
  const bool may_use_less = plan.step.evaluates || teacher_gathers || late_ || gathers || plan.step.mesh.ep > 1 ||
                            plan.step.mesh.of_frozen().ep > 1;
  WEFT_CHECK(workspace.peak() == plan.memory.workspace || (may_use_less && workspace.peak() < plan.memory.workspace),
             "workspace: {} bytes used, {} planned", workspace.peak(), plan.memory.workspace);
}

int64_t RankRun::peak_bytes() const { return arenas.peak().total() + workspace.peak() + executor.peak_bytes(); }

}  // namespace weft
