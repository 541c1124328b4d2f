// A small stand-in for a recipe's model and batch, that a layout cuts in the same way.
#pragma once
#include "weft/models/hf_config.h"
#include "weft/recipe/recipe.h"

namespace weft {

struct NarrowCopy {
  Recipe recipe;
  HfConfig config;
};

// Keeps the family and all settings of the layout. Sizes become small, with what makes cuts even or uneven:
//   layers               as many as virtual stages, at least two
//   key heads            the same remainder modulo tp, where tp cuts them; all of them, where they are fewer than tp
//   query heads          as many for each key head
//   inner width,         the same remainder modulo tp
//   vocabulary
//   width, head width    the same remainder modulo 8
//   these and inner      shards of ZeRO, which are cut at multiples of kSumLeaf elements, cut them within a row where
//   width                they did
//   sequence             the same remainder modulo tp, and its tokens of a micro-batch even on tp or not, as they were
//   micro-batches        of a rank: the same remainder modulo pp (without a pipeline, 2), at least two where there
//                        were; unequal shares stay unequal
// Nothing becomes larger than it was. Weights are random; the data's ids do not fit.
NarrowCopy narrow_copy(const Recipe& recipe, const HfConfig& config);

}  // namespace weft
