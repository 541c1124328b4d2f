// Phases whose objectives have other heads of the model: a reward model's score, PPO's values, logits.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "weft/recipe/recipe_phases.h"
#include "weft/train/rank_run.h"

namespace weft {

struct PhaseBefore {
  std::filesystem::path checkpoint;  // behind it: the run has just written it, or gone on from it
  const ModelSpec& model;
};
// What a phase begins with that has other heads than the one before: what both models train, with its optimizer state,
// of that phase's checkpoint; the rest as a run of its own begins with it, by this recipe. Writes masters, values and
// states. Returns what was begun and dropped, in words. Throws FileError. Collective. Blocks.
std::vector<std::string> begin_other_heads(const Recipe& recipe, const PhaseBefore& before, RankRun& rank,
                                           int num_threads);

// The checkpoints of a run with the last values of heads that its phases drop: each is of the step with which such a
// phase begins, and may not be there yet. A head of text that is the embedding's table, or that is frozen beside an
// adapter, is not dropped.
std::vector<std::filesystem::path> last_of_dropped_heads(const Recipe& recipe);

// Says which weights of a span's model its phases have begun late (ParamStore::begins_late).
void mark_late_heads(const PhaseSpan& span, ParamStore& params);

}  // namespace weft
