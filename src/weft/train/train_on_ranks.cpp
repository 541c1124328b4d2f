#include "weft/train/train_on_ranks.h"

#include "weft/comm/local_group.h"

namespace weft {

bool train_on_ranks(const RanksSetup& setup) {
  std::atomic<bool> finished{false};  // every rank says the same
  const auto train = [&](const ProcessMesh& mesh) {
    Trainer trainer(plan_run(setup.recipe, *setup.machine.workspace_model, mesh.world->rank()),
                    {.recipe = setup.recipe,
                     .machine = setup.machine,
                     .mesh = mesh,
                     .stop = setup.stop,
                     .terminal_fd = setup.terminal_fd});
    finished = trainer.run();
  };
  const MeshSizes sizes = mesh_sizes_of(setup.recipe);
  if (sizes.world() == 1)
    train(single_mesh());
  else
    run_local(sizes, train);
  return finished;
}

}  // namespace weft
