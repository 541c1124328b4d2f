// Phases whose objectives have other heads of the model: a reward model's score, PPO's values, logits.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "weft/recipe/recipe_phases.h"
#include "weft/train/rank_run.h"

namespace weft {

// What a phase begins with that has other heads than the one before: what both models train, with its optimizer state,
// of the checkpoint behind that phase, which the run has just written or gone on from; the rest as a run of its own
// begins with it, by this recipe. Writes masters, values and states. Returns what was begun and dropped, in words.
// Throws FileError. Collective. Blocks.
struct PhaseBefore {
  std::filesystem::path checkpoint;
  const ModelSpec& model;
};
std::vector<std::string> begin_other_heads(const Recipe& recipe, const PhaseBefore& before, RankRun& rank,
                                           int num_threads);

// Says which weights of a span's model its phases have begun late (ParamStore::begins_late).
void mark_late_heads(const PhaseSpan& span, ParamStore& params);

}  // namespace weft
