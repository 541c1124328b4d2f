// The weights that a run begins with.
#pragma once
#include <string>
#include <vector>

#include "weft/models/model_spec.h"
#include "weft/recipe/recipe.h"
#include "weft/sharding/param_store.h"

namespace weft {

// Writes the masters that this rank keeps: the pretrained weights of the recipe's model folder, or random ones; and of
// an adapter the recipe's, or new ones. Values are then theirs. Returns what was passed over, in words. Throws
// FileError. Collective over the ranks of `params`. Blocks.
std::vector<std::string> begin_weights(const Recipe& recipe, const ModelSpec& model, ParamStore& params,
                                       Backend& backend, int num_threads);

}  // namespace weft
