#include "weft/train/joined_island.h"

#include "weft/base/hashing.h"
#include "weft/base/is_there.h"

namespace weft {

OuterSpec outer_spec_of(const Islands& islands) {
  return {.lr = islands.outer_lr,
          .momentum = islands.outer_momentum,
          .wire = islands.wire_precision == "bf16" ? OuterSpec::Wire::bf16 : OuterSpec::Wire::f32};
}

std::string model_text(const OuterLayout& layout) { return to_hex(hash128(layout.describe())); }

JoinedIsland::JoinedIsland(Spec spec)
    : layout_(spec.rank.plan.model, spec.setup.settings.fragments),
      state_(layout_, outer_spec_of(spec.setup.settings), spec.rank.state.params) {
  const Islands& islands = spec.setup.settings;
  OuterAge age;
  if (spec.checkpoint) {
    const auto file = *spec.checkpoint / "weft" / "outer.safetensors";
    if (!is_there(file))
      throw FileError(fmt::format(
          "{}: is not there: the checkpoint is of a run that was no island; begin with its weights (model.path) in "
          "another run.dir",
          file.string()));
    age = state_.read(file);
  }
  RankRun& rank = spec.rank;
  member_.emplace(IslandMember::Spec{.world = *rank.mesh.world,
                                     .address = islands.address,
                                     .secret = spec.setup.secret,
                                     .hello = {.number = islands.number,
                                               .age = {},
                                               .state = "",
                                               .settings = shared_settings(islands, spec.recipe),
                                               .model = model_text(layout_),
                                               .data = to_hex(hash128(spec.data))},
                                     .steps_of_round = islands.sync_every / islands.fragments,
                                     .last_step = spec.recipe.train.train_iters,
                                     .max_staleness = islands.max_staleness,
                                     .timeout_s = islands.timeout_seconds,
                                     .begin_to_write = [&rank] { rank.backend.wait_all(); },
                                     .has_written = [&rank] { rank.state.params.masters_changed(rank.backend); },
                                     .tell = std::move(spec.tell),
                                     .stopped = std::move(spec.stopped)},
                  state_, age);
}

}  // namespace weft
