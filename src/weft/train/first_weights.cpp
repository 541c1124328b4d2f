#include "weft/train/first_weights.h"

#include <filesystem>
#include <utility>

#include "weft/checkpoint/checkpoint_check.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/models/hf_weights.h"
#include "weft/models/init.h"
#include "weft/models/peft.h"
#include "weft/models/weight_source.h"

namespace weft {

namespace {

// What was said of heads that the base has not, and the adapter has.
void forget_heads_of(const std::filesystem::path& adapter, std::vector<std::string>& notes) {
  const SafetensorsFile file = SafetensorsFile::open(adapter / kAdapterFile);
  const std::pair<const char*, const char*> heads[] = {{"base_model.model.score.weight", "score.weight is not there"},
                                                       {"v_head.summary.weight", "v_head.summary is not there"}};
  for (const auto& head : heads)
    if (file.find(head.first) != nullptr)
      std::erase_if(notes, [&](const std::string& said) { return said.starts_with(head.second); });
}

std::vector<std::string> write_masters(const Recipe& recipe, const ModelSpec& model, const ParamStore& params,
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
    forget_heads_of(recipe.adapter.path, notes);
    for (std::string& note : open_adapter(std::filesystem::path(recipe.adapter.path) / kAdapterFile, model)->notes())
      notes.push_back(std::move(note));
  }
  return notes;
}

}  // namespace

std::vector<std::string> begin_weights(const Recipe& recipe, const ModelSpec& model, ParamStore& params,
                                       Backend& backend, int num_threads) {
  std::vector<std::string> notes = write_masters(recipe, model, params, num_threads);
  params.masters_changed(backend);
  if (!model.adapter || !model.adapter->magnitudes || !recipe.adapter.path.empty()) return notes;
  init_magnitudes(params, backend);
  params.masters_changed(backend);
  return notes;
}

}  // namespace weft
