// How many of the model's blocks each virtual stage of a pipeline has. Pure functions.
// The embedding lies on the first virtual stage, the head on the last; blocks keep their order.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft {

// One count for each virtual stage, in the order of forward (Pipeline says on which rank each lies).
using BlockLayout = std::vector<int64_t>;

// In any unit, as long as it is the same: seconds, FLOP, bytes. At least 0.
struct BlockCosts {
  std::vector<double> blocks;
  double embedding = 0, head = 0;
};

// The layout whose dearest virtual stage is cheapest; of those the most even one (least sum of squares), and of those
// the one with fewer blocks at the front, where 1F1B keeps most micro-batches alive. Every virtual stage has at least
// `min_blocks`, or as many of them as there are for all: none where there are fewer blocks than virtual stages.
// Takes about virtual stages x blocks^2 steps.
BlockLayout balanced_layout(const BlockCosts& costs, int num_virtual_stages, int64_t min_blocks = 1);

// What is wrong with a layout of somebody's choice; empty: nothing. It has as many counts as there are virtual stages,
// that add up to `num_blocks`, and no 0 but for the first and the last, which have the embedding and the head.
std::string layout_fault(const BlockLayout& layout, int num_virtual_stages, int64_t num_blocks);
// One without fault near a layout of as many counts, none of them negative: the largest are cut, or all get more. None
// where there are too few blocks.
std::optional<BlockLayout> nearest_layout(const BlockLayout& layout, int64_t num_blocks);
// "[3, 4, 4, 3]", as in recipes
std::string to_string(const BlockLayout& layout);

// The virtual stage's blocks are [first_block, first_block + layout[virtual_stage]).
int64_t first_block(const BlockLayout& layout, int virtual_stage);

}  // namespace weft
