#include "weft/train/train_on_ranks.h"

#include "weft/comm/local_group.h"
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
    Trainer trainer(plan_run(setup.recipe, *setup.machine.workspace_model, mesh.world->rank()),
                    {.recipe = setup.recipe,
                     .machine = setup.machine.of_rank(mesh.world->rank()),
                     .mesh = mesh,
                     .stop = setup.stop,
                     .terminal_fd = setup.terminal_fd,
                     .data = setup.rows});
    finished = trainer.run() == RunEnd::finished;
  };
  setup.run(mesh_sizes_of(setup.recipe), *setup.machine.mover, train);
  return finished;
}

}  // namespace weft
