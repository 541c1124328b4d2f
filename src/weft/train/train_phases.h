// A run with phases on one rank: a Trainer for each span of steps that are alike, one behind the other, which hand on
// weights and optimizer state where they lie in memory.
#pragma once
#include "weft/train/train_on_ranks.h"

namespace weft {

// What every Trainer of a rank has: all but its data, references and phases.
Trainer::Setup trainer_setup(const RanksSetup& setup, const ProcessMesh& mesh, RankSigns& signs);

// As Trainer::run of the whole run. Opens the data of all phases before the first step. `spans`: of the recipe.
RunEnd train_phases(const RanksSetup& setup, const std::vector<RunSpan>& spans, const ProcessMesh& mesh,
                    RankSigns& signs);

}  // namespace weft
