// Which checkpoints of a run have the least held-out loss.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "weft/recipe/recipe.h"
#include "weft/train/checkpoint_folders.h"

namespace weft {

struct HeldOut {
  double loss = 0;     // nats per counted target, finite
  int64_t tokens = 0;  // counted targets
};
struct ScoredCheckpoint {
  std::filesystem::path path;
  HeldOut held_out;
};
// Of those of RUN/checkpoints that say what their held-out loss was, the `most` with the least, best first; of equal
// ones the older. What cannot be read is left out.
std::vector<ScoredCheckpoint> best_checkpoints(const std::filesystem::path& run, int64_t most);
// Which of its checkpoints a run of this recipe keeps: the newest, and of those that are there now the best.
KeptCheckpoints kept_checkpoints(const Recipe& recipe);

}  // namespace weft
