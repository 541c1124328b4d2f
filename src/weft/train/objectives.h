// The objective of a run, as its recipe names it.
#pragma once
#include <memory>

#include "weft/recipe/recipe.h"
#include "weft/step/objective.h"
#include "weft/train/rank_run.h"

namespace weft {

std::unique_ptr<const Objective> objective_of(const Recipe& recipe);

// Writes the weights of the frozen models: of a reference, those that the run began with, from model.path or by
// train.seed, also where it goes on from a checkpoint. Throws FileError. Collective.
void start_frozen(const Recipe& recipe, RankRun& rank, int num_threads);

}  // namespace weft
