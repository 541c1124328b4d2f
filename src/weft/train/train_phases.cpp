#include "weft/train/train_phases.h"

#include <algorithm>

#include "weft/plan/run_plan.h"

namespace weft {
namespace {

// The data of each mix.
std::vector<RunData> open_mixes(const RanksSetup& setup, const std::vector<RunSpan>& spans, const ProcessMesh& mesh) {
  std::vector<RunData> mixes;
  if (setup.rows != nullptr && setup.rows->train) mixes.push_back(*setup.rows);  // which have one
  for (const RunSpan& span : spans)
    if (span.mix == int64_t(mixes.size()))
      mixes.push_back(open_rank_data(span.recipe, prepare_run(span.recipe, mesh.world->rank()).model, *mesh.world,
                                     setup.terminal_fd, span.begun));
  return mixes;
}

}  // namespace

RunEnd train_phases(const RanksSetup& setup, const std::vector<RunSpan>& spans, const ProcessMesh& mesh) {
  const int rank = mesh.world->rank();
  const Machine& machine = setup.machine.of_rank(rank);
  const std::vector<RunData> mixes = open_mixes(setup, spans, mesh);
  const FoundCheckpoint found = find_checkpoint_to_resume(setup.recipe.run.dir, *mesh.world, machine.threads);
  const int64_t done = found.path ? read_progress(*found.path).step : 0;
  std::optional<CarriedRun> carried;
  // A checkpoint is of the span that trained its last step.
  for (size_t at = span_of(spans, std::max<int64_t>(0, done - 1));; ++at) {
    Trainer trainer(plan_run(spans[at].recipe, *setup.machine.workspace_model, rank),
                    {.recipe = setup.recipe,
                     .machine = machine,
                     .mesh = mesh,
                     .stop = setup.stop,
                     .terminal_fd = setup.terminal_fd,
                     .data = &mixes[size_t(spans[at].mix)],
                     .phases = {&spans[at], &found, carried ? &*carried : nullptr}});
    const RunEnd end = trainer.run();
    if (end != RunEnd::span_done) return end;
    carried.emplace(trainer.take_carried());
  }
}

}  // namespace weft
