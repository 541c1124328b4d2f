#include "weft/train/best_checkpoints.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/train/checkpoint_state.h"

namespace weft {

std::vector<ScoredCheckpoint> best_checkpoints(const std::filesystem::path& run, int64_t most) {
  std::vector<ScoredCheckpoint> all;
  if (most == 0) return all;
  for (const auto& path : all_checkpoints(run)) {
    try {
      if (const auto held_out = read_progress(path).held_out) all.push_back({path, *held_out});
    } catch (const FileError&) {  // a damaged one is not the best
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.held_out.loss < b.held_out.loss; });
  if (int64_t(all.size()) > most) all.erase(all.begin() + std::ptrdiff_t(most), all.end());
  return all;
}

KeptCheckpoints kept_checkpoints(const Recipe& recipe) {
  KeptCheckpoints kept{.latest = recipe.checkpoint.keep_latest, .best = {}};
  for (const ScoredCheckpoint& best : best_checkpoints(recipe.run.dir, recipe.checkpoint.keep_best))
    kept.best.push_back(best.path);
  return kept;
}

}  // namespace weft
