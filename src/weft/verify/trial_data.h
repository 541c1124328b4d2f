// The data of a trial: the recipe's own, or random.
#pragma once
#include <memory>

#include "weft/data/training_samples.h"
#include "weft/models/hf_config.h"
#include "weft/recipe/recipe.h"

namespace weft {

// Whether the recipe's training data can be read without making anything: token ids, not texts.
bool has_token_files(const Recipe& recipe);
// Those files, as training reads them. Throws FileError, ConfigError.
std::shared_ptr<const TrainingSamples> open_token_files(const Recipe& recipe, const ModelSpec& model);
// Random tokens for so many steps, with a random mask where the recipe has one, or random rows where its objective
// reads these; and where a teacher's logits are stored, random ones: a function of its seed. They are held by the
// stream alone: no file stays, however the process ends.
std::shared_ptr<const TrainingSamples> random_tokens(const Recipe& recipe, const HfConfig& model, int64_t steps);

}  // namespace weft
