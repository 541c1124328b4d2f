// Which ranks of a layout have the same plan for certain, so that one of them is planned for all.
#pragma once
#include <vector>

#include "weft/plan/run_plan.h"

namespace weft {

using Places = std::vector<int>;  // of a stage's ranks: dp x cp x tp, tp innermost

// What tensor-parallel ranks hold of a block and the tables: where that is equal, so is all that follows from it.
std::vector<std::vector<int>> tp_classes(const RunPlan& run);
// Groups the places of these tensor-parallel ranks, of the stage of `step`, by memory that is the same for certain.
// Where the optimizer updates whole matrices, they are those that keep as much state, and to which matrices of the same
// shapes fall; where its state is codes, those that touch as many code blocks. Beside a teacher with axes of its own,
// those that have the same of it; and always those that have as many micro-batches.
std::vector<Places> update_classes(const Recipe& recipe, const RunPlan& run, const StepSpec& step,
                                   const std::vector<int>& tp);
int rank_at_place(const MeshSizes& mesh, int stage, int place);

// Does a stage do the same list of actions over the same blocks, so that its ranks hold and send the same.
bool runs_alike(const ModelSpec& model, const StepSpec& a, const StepSpec& b);

}  // namespace weft
