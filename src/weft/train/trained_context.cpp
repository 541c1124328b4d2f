#include "weft/train/trained_context.h"

#include <algorithm>

#include "weft/base/json.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

bool is_random(const Recipe& r) { return r.model.init == InitChoice::random; }

}  // namespace

int64_t context_of(const fs::path& folder, const HfConfig& config) {
  const fs::path state = folder / "weft" / "state.json", recipe = folder / "weft" / "recipe.toml";
  std::error_code ignored;
  if (!fs::exists(state, ignored)) return config.spec.max_positions;
  const nlohmann::json json = read_json_file(state);
  const JsonFields fields(json, state.string());
  if (fields.has("context")) return fields.integer("context", {.min = 1});
  if (!fs::exists(recipe, ignored)) return config.spec.max_positions;
  const Recipe trained = parse_recipe_file(recipe.string(), {});  // of a weft that did not say
  return is_random(trained) ? trained.train.seq_length : std::max(trained.train.seq_length, config.spec.max_positions);
}

int64_t context_of(const Recipe& recipe, const HfConfig& config) {
  const int64_t here = recipe.train.seq_length;
  return is_random(recipe) ? here : std::max(here, context_of(fs::path(recipe.model.path), config));
}

nlohmann::json config_of_checkpoint(const Recipe& recipe, const HfConfig& config, DType dtype) {
  nlohmann::json json = hf_config_of(config, dtype);
  if (is_random(recipe) && !config.spec.learned_positions) json["max_position_embeddings"] = recipe.train.seq_length;
  if (config.adapter && config.adapter->base_codes != WeightCodes::none)
    json["quantization_config"] = quantisation_of(config.adapter->base_codes);
  return json;
}

nlohmann::json config_of_merged(const fs::path& folder, const HfConfig& config, DType dtype) {
  nlohmann::json json = hf_config_of(config, dtype), longer = json;
  const int64_t context = context_of(folder, config);
  if (config.spec.learned_positions || context <= config.spec.max_positions) return json;
  longer["max_position_embeddings"] = context;
  const ModelSpec model = parse_hf_config(longer, folder.string()).spec;
  return model.rope == config.spec.rope && model.layers == config.spec.layers ? longer : json;
}

}  // namespace weft
