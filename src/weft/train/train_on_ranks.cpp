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
  const bool rebalances = setup.recipe.train.rebalance && setup.recipe.parallel.dp > 1;
  if ((setup.recipe.objective.precompute_ref_log_probs || rebalances) && !rows.train)
    rows = open_rank_data(setup.recipe, prepare_run(setup.recipe, mesh.world->rank()).model, *mesh.world,
                          setup.terminal_fd);
  const Trainer::Setup whole = trainer_setup(setup, mesh, signs);
  const RunReferences references = prepare_references(setup.recipe, rows, whole.machine, mesh, setup.terminal_fd);
  std::optional<CarriedRun> carried;
  Recipe recipe = setup.recipe;
  for (;;) {  // a Trainer for as long as the shares of micro-batches stay
    const Trainer::Setup own{.recipe = recipe,
                             .machine = whole.machine,
                             .mesh = mesh,
                             .stop = setup.stop,
                             .terminal_fd = setup.terminal_fd,
                             .heartbeat = setup.heartbeat,
                             .signs = &signs,
                             .data = &rows,
                             .references = references,
                             .islands = setup.islands,
                             .phases = {.carried = carried ? &*carried : nullptr}};
    Trainer trainer(plan_of_rank(recipe, *setup.machine.workspace_model, *mesh.world), own);
    const RunEnd end = trainer.run();
    if (end != RunEnd::rebalanced) return end;
    carried.emplace(trainer.take_carried());
    recipe = carried->recipe;
  }
}

}  // namespace

bool train_on_ranks(const RanksSetup& setup) {
  std::atomic<bool> finished{false};  // every rank says the same
  const bool phased = has_phases(setup.recipe);
  const std::vector<RunSpan> spans = phased ? run_spans(setup.recipe) : std::vector<RunSpan>();
  const MeshSizes sizes = mesh_sizes_of(setup.recipe);
  const std::optional<RoomToTune> room =
      setup.recipe.train.autotune ? std::optional<RoomToTune>(setup) : std::optional<RoomToTune>();
  HangWatch watch({.run = setup.recipe.run.dir,
                   .world = sizes.world(),
                   .least_s = setup.hang_s,
                   .hung = setup.hung,
                   .crashed = setup.crashed});
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
