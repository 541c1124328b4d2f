// The objective of a run, as its recipe names it.
#pragma once
#include <memory>
#include <vector>

#include "weft/data/row_order.h"
#include "weft/recipe/recipe.h"
#include "weft/step/objective.h"
#include "weft/train/rank_run.h"

namespace weft {

// `samples` are the run's, and must outlive it; `place` says which of them a batch has.
std::unique_ptr<const Objective> objective_of(const Recipe& recipe, const TrainingSamples& samples,
                                              const BatchPlace& place = {});

// The reward of each row beside those of its group, consecutive rows: (reward - mean) / (std + eps), or without the
// division.                                                                     Shao et al. 2024, section 4.1.2
std::vector<double> advantages_of(const IdRows& rows, const Recipe::Objective& objective);

// The recipe whose first weights are those of its reference: objective.reference's, else its own.
Recipe recipe_of_reference(const Recipe& recipe);

// Writes the weights of the frozen models: of a reference, recipe_of_reference's first ones, also where the run goes on
// from a checkpoint; of a teacher, those of its folder. Returns what was passed over
// there, in words. Throws FileError. Collective.
std::vector<std::string> start_frozen(const Recipe& recipe, RankRun& rank, int num_threads);

}  // namespace weft
