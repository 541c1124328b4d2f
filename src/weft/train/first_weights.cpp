#include "weft/train/first_weights.h"

#include "weft/checkpoint/checkpoint_check.h"
#include "weft/models/hf_weights.h"
#include "weft/models/init.h"
#include "weft/models/peft.h"

namespace weft {

std::vector<std::string> begin_weights(const Recipe& recipe, const ModelSpec& model, const ParamStore& params,
                                       int num_threads) {
  const auto seed = uint64_t(recipe.train.seed);
  std::vector<std::string> notes;
  if (model.begins_score) init_weight(params, "score.weight", seed, num_threads);
  if (model.predicts_values)  // which the folder may not have
    for (const char* name : {"value.weight", "value.bias"}) init_weight(params, name, seed, num_threads);
  if (recipe.model.init == InitChoice::pretrained)
    notes = load_hf_weights(recipe.model.path, model, params, num_threads);
  else
    init_weights(params, seed, num_threads);
  if (!model.adapter) return notes;
  if (recipe.adapter.path.empty()) {
    init_adapter(params, seed, num_threads);
  } else {
    require_whole(recipe.adapter.path, CheckpointPart::model, *params.mesh().world, num_threads);
    require_base(recipe.adapter.path, recipe.model.path);
    read_adapter_weights(recipe.adapter.path, model, params);
  }
  return notes;
}

}  // namespace weft
