// What the blocks of one pipeline stage compute again to fit a budget, by dry runs of its ranks.
#pragma once
#include <array>
#include <optional>
#include <vector>

#include "weft/plan/recompute_solve.h"
#include "weft/plan/run_plan.h"

namespace weft {

using BlockLevels = std::vector<BlockRecompute>;  // [block of the whole model]
// Likewise: of a micro-batch's way there and back, with what is computed again.
using BlockFlops = std::vector<std::array<double, kBlockRecomputes>>;

class RecomputeStage {
 public:
  // `steps`: of a rank of each kind that the stage has, with nothing computed again. All but these are borrowed.
  RecomputeStage(const RunPlan& run, std::vector<StepSpec> steps, const WorkspaceModel& workspace);

  // What the fullest rank takes where its blocks keep all, in bytes.
  int64_t keeping_all() const { return keeping_all_; }
  // Writes what the blocks of the stage do, and returns what the fullest rank takes with that: at most the budget, or
  // where no way is found that fits, as least().
  int64_t choose(int64_t budget, const BlockFlops& flops, BlockLevels& levels);
  // The same with the least way that is found: as bytes add up, or where all blocks do the same.
  int64_t least(BlockLevels& levels);

 private:
  // What a plan is the sum of: bytes to which every block of a chunk adds, and bytes of which the block that needs most
  // decides.
  struct Parts {
    std::vector<int64_t> sums, most;
    int64_t total = 0;
  };
  // Blocks that are alike.
  struct Kind {
    int chunk;
    LayerSpec layer;
    std::vector<int64_t> blocks;
  };
  struct Way {
    std::vector<RecomputeCounts> counts;  // [kind]
    double flops = 0;
    int64_t again = 0;  // blocks that compute something again
    int64_t bytes = 0;  // as they add up
  };
  void find_kinds();
  void measure();
  Parts parts_where(BlockRecompute again, const LayerSpec* layer) const;
  int64_t most_of(const RecomputeLevels& allowed) const;
  Way way_of(std::vector<RecomputeCounts> counts, const RecomputeLevels& allowed) const;
  std::optional<Way> cheapest(int64_t budget) const;
  Way smallest() const;
  void write(const Way& way, BlockLevels& levels) const;
  int64_t planned(const BlockLevels& levels, std::optional<int64_t> budget = {}) const;
  bool do_less(int64_t budget, int64_t& bytes, BlockLevels& levels) const;

  const RunPlan& run_;
  std::vector<StepSpec> steps_;
  const WorkspaceModel& workspace_;
  int64_t keeping_all_ = 0;
  size_t fullest_ = 0;  // of the steps
  std::vector<Kind> kinds_;
  std::vector<RecomputeGroup> groups_;           // [kind]
  std::array<Parts, kBlockRecomputes> uniform_;  // where all blocks do the same
};

}  // namespace weft
