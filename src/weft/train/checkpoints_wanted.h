// How many checkpoints a run comes to have at once, for judge_checkpoint_room.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "weft/recipe/recipe.h"

namespace weft {

// How many of the steps behind `step` are multiples of `every`, or the last. Of a run by epochs it is not known yet how
// many steps there are: then it is as if there were some.
int64_t times_left(const Recipe& recipe, int64_t step, int64_t every);

struct CheckpointsThere {
  std::vector<std::filesystem::path> staying;  // those that no save may remove before the next is whole, oldest first
  std::vector<std::filesystem::path> for_phases;  // kept_checkpoints but for the best, there or not; one may be twice
};
// Beside those that stay; the newest of these goes when the next is whole, unless a phase needs it. The newest
// is taken to be one of the best, as long as the loss falls.
struct WantedCheckpoints {
  int64_t count = 0;
  std::string name;  // "two", "3 (phases keep 1 of them)"
};
WantedCheckpoints wanted_checkpoints(const Recipe& recipe, const CheckpointsThere& there);

}  // namespace weft
