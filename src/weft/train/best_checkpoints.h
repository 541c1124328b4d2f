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
// The at most `most` checkpoints of RUN/checkpoints with the least held-out loss, as they say it themselves: best
// first, the older first where two are equal. What cannot be read, and what does not say its loss, is left out.
std::vector<ScoredCheckpoint> best_checkpoints(const std::filesystem::path& run, int64_t most);
// Which of its checkpoints a run of this recipe keeps: the newest, and of those that are there now the best.
KeptCheckpoints kept_checkpoints(const Recipe& recipe);

}  // namespace weft
