#include "weft/train/train_on_ranks.h"

#include "weft/comm/local_group.h"

namespace weft {

void run_on_threads(const MeshSizes& sizes, const Mover& mover, const std::function<void(const ProcessMesh&)>& body) {
  if (sizes.world() == 1)
    body(single_mesh());
  else
    run_local(sizes, body, mover);
}

bool train_on_ranks(const RanksSetup& setup) {
  std::atomic<bool> finished{false};  // every rank says the same
  const auto train = [&](const ProcessMesh& mesh) {
    Trainer trainer(plan_run(setup.recipe, *setup.machine.workspace_model, mesh.world->rank()),
                    {.recipe = setup.recipe,
                     .machine = setup.machine.of_rank(mesh.world->rank()),
                     .mesh = mesh,
                     .stop = setup.stop,
                     .terminal_fd = setup.terminal_fd,
                     .rows = setup.rows});
    finished = trainer.run();
  };
  setup.run(mesh_sizes_of(setup.recipe), *setup.machine.mover, train);
  return finished;
}

}  // namespace weft
