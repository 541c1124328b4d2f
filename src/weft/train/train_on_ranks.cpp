#include "weft/train/train_on_ranks.h"

#include "weft/comm/local_group.h"
#include "weft/comm/rank_watch.h"
#include "weft/train/autotune.h"
#include "weft/train/rank_plan.h"
#include "weft/train/train_phases.h"

namespace weft {

void run_on_threads(const MeshSizes& sizes, const Mover& mover, const std::function<void(const ProcessMesh&)>& body) {
  if (sizes.world() == 1)
    body(single_mesh());
  else
    run_local(sizes, body, mover);
}

namespace {

RunEnd train_rank(const RanksSetup& setup, const ProcessMesh& mesh, RankSigns& signs) {
  RunData rows = setup.rows != nullptr ? *setup.rows : RunData();
  if (setup.recipe.objective.precompute_ref_log_probs && !rows.train)
    rows = open_rank_data(setup.recipe, prepare_run(setup.recipe, mesh.world->rank()).model, *mesh.world,
                          setup.terminal_fd);
  Trainer::Setup own = trainer_setup(setup, mesh, signs);
  own.data = &rows;
  own.references = prepare_references(setup.recipe, rows, own.machine, mesh, setup.terminal_fd);
  Trainer trainer(plan_of_rank(setup.recipe, *setup.machine.workspace_model, *mesh.world), own);
  return trainer.run();
}

}  // namespace

bool train_on_ranks(const RanksSetup& setup) {
  std::atomic<bool> finished{false};  // every rank says the same
  const bool phased = has_phases(setup.recipe);
  const std::vector<RunSpan> spans = phased ? run_spans(setup.recipe) : std::vector<RunSpan>();
  const MeshSizes sizes = mesh_sizes_of(setup.recipe);
  const std::optional<RoomToTune> room =
      setup.recipe.train.autotune ? std::optional<RoomToTune>(setup) : std::optional<RoomToTune>();
  HangWatch watch({.run = setup.recipe.run.dir, .world = sizes.world(), .least_s = setup.hang_s, .hung = setup.hung});
  const auto train = [&](const ProcessMesh& plain) {
    RankSigns& signs = watch.join(plain.world->rank());
    const ProcessMesh mesh = recorded(plain, signs.calls);
    try {
      finished = (phased ? train_phases(setup, spans, mesh, signs)
                  : room ? train_autotuned(setup, *room, mesh, signs)
                         : train_rank(setup, mesh, signs)) == RunEnd::finished;
    } catch (const HangError&) {
      watch.write(signs);
      throw;
    }
  };
  setup.run(sizes, *setup.machine.mover, train);
  return finished;
}

}  // namespace weft
