#include "weft/train/train_on_ranks.h"

#include "weft/comm/local_group.h"
#include "weft/train/rank_plan.h"
#include "weft/train/train_phases.h"

namespace weft {

void run_on_threads(const MeshSizes& sizes, const Mover& mover, const std::function<void(const ProcessMesh&)>& body) {
  if (sizes.world() == 1)
    body(single_mesh());
  else
    run_local(sizes, body, mover);
}

bool train_on_ranks(const RanksSetup& setup) {
  std::atomic<bool> finished{false};  // every rank says the same
  const bool phased = has_phases(setup.recipe);
  const std::vector<RunSpan> spans = phased ? run_spans(setup.recipe) : std::vector<RunSpan>();
  const auto train = [&](const ProcessMesh& mesh) {
    if (phased) {
      finished = train_phases(setup, spans, mesh) == RunEnd::finished;
      return;
    }
    const Machine& machine = setup.machine.of_rank(mesh.world->rank());
    const int rank = mesh.world->rank();
    RunData rows = setup.rows != nullptr ? *setup.rows : RunData();
    if (setup.recipe.objective.precompute_ref_log_probs && !rows.train)
      rows = open_rank_data(setup.recipe, prepare_run(setup.recipe, rank).model, *mesh.world, setup.terminal_fd);
    RunReferences references = prepare_references(setup.recipe, rows, machine, mesh, setup.terminal_fd);
    Trainer trainer(plan_of_rank(setup.recipe, *setup.machine.workspace_model, *mesh.world),
                    {.recipe = setup.recipe,
                     .machine = machine,
                     .mesh = mesh,
                     .stop = setup.stop,
                     .terminal_fd = setup.terminal_fd,
                     .heartbeat = setup.heartbeat,
                     .data = &rows,
                     .references = std::move(references)});
    finished = trainer.run() == RunEnd::finished;
  };
  setup.run(mesh_sizes_of(setup.recipe), *setup.machine.mover, train);
  return finished;
}

}  // namespace weft
