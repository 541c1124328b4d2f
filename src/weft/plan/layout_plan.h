// The plans of all ranks of a layout, of any size: ranks whose plans are equal are planned once.
#pragma once
#include <string>
#include <vector>

#include "weft/plan/run_plan.h"

namespace weft {

// Ranks with the same memory: of these stages and tensor-parallel ranks, and of all dp and cp unless the optimizer
// updates whole matrices, which fall to ranks in turns, or a teacher has axes of its own. `traffic` is that of `rank`;
// what the others send differs from it under invariant numerics and where matrices fall to ranks. So does, by some KiB,
// the workspace in which shards of an embedding add up their norms, where a stage has no more than that; and that of
// attention, where ranks of cp see fewer keys.
struct RankClass {
  std::vector<int> stages, tp_ranks;  // ascending
  std::vector<int> ranks;             // all of them, ascending
  int rank = 0;                       // the one that was planned
  int64_t num_ranks = 0;
  MemoryPlan plan;
};
struct LayoutPlan {
  RunPlan run;                     // of the first class
  std::vector<RankClass> classes;  // the largest total first
};

// Throws as plan_run does.
LayoutPlan plan_layout(const Recipe& recipe, const WorkspaceModel& workspace);

// "stages 1-14, tp 0-3,5 (640 ranks, as rank 64)", "tp 0 (3 of 8 ranks, as rank 0)"
std::string to_string(const RankClass& c, const MeshSizes& sizes);
// A line for each class: ranks, parameters, gradients, state, activations and the rest, total.
std::string summary_of(const LayoutPlan& plan);
// What a rank's collectives move in a step, by axis and kind.
std::string to_string(const Traffic& traffic);

}  // namespace weft
