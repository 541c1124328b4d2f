#include "weft/models/draft_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "weft/base/error.h"
#include "weft/models/gptq_folder.h"
#include "weft/models/hf_names.h"

namespace weft {
namespace {

using Json = nlohmann::json;
using Layers = std::span<const int64_t>;

constexpr const char *kLayerTypes = "layer_types", *kDenseLayers = "mlp_only_layers";

[[noreturn]] void refuse(Layers layers, const std::string& why) {
  throw ConfigError(fmt::format("--layers {}: {}", fmt::join(layers, ","), why));
}

void require_layers(Layers layers, int64_t num_layers) {
  if (layers.empty()) refuse(layers, "a model has one layer at least");
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] < 0 || layers[i] >= num_layers)
      refuse(layers, fmt::format("there is no layer {}: the model has {}, counted from 0 to {}", layers[i], num_layers,
                                 num_layers - 1));
    if (i > 0 && layers[i] <= layers[i - 1]) refuse(layers, "name each layer once, in the model's order");
  }
}

bool are_blocks(const ModelSpec& draft, const ModelSpec& model, Layers layers) {
  if (draft.num_layers != int64_t(layers.size())) return false;
  for (size_t i = 0; i < layers.size(); ++i)
    if (draft.layer(int64_t(i)) != model.layer(layers[i])) return false;
  return true;
}

// What config.json derives from a layer's number, written down for each layer.
void write_out_layers(Json& json, const ModelSpec& model, Layers layers) {
  const auto is_one_of = [&](auto test) {
    return std::any_of(model.layers.begin(), model.layers.end(), [&](const LayerSpec& l) { return test(l); });
  };
  if (is_one_of([](const LayerSpec& l) { return l.window > 0; })) {
    json[kLayerTypes] = Json::array();
    for (const int64_t l : layers)
      json[kLayerTypes].push_back(model.layer(l).window > 0 ? "sliding_attention" : "full_attention");
  }
  if (!is_one_of([](const LayerSpec& l) { return l.experts; })) return;
  std::vector<int64_t> dense;
  for (size_t i = 0; i < layers.size(); ++i)
    if (!model.layer(layers[i]).experts) dense.push_back(int64_t(i));
  if (model.family == Family::deepseek_v2 || model.family == Family::deepseek_v3) {
    json["first_k_dense_replace"] = dense.size();  // those before the others: what else there is, is refused
    json["moe_layer_freq"] = 1;
  } else if (model.family == Family::qwen2_moe || model.family == Family::qwen3_moe) {
    json["decoder_sparse_step"] = 1;
    json[kDenseLayers] = dense;
  }
}

// blocks.3.attn.out.weight of the draft is blocks.7.attn.out.weight of the model.
std::string weight_in_model(const std::string& param, Layers layers) {
  constexpr std::string_view kBlocks = "blocks.";
  if (!param.starts_with(kBlocks)) return param;
  const size_t end = param.find('.', kBlocks.size());
  const int64_t block = std::stoll(param.substr(kBlocks.size(), end - kBlocks.size()));
  return fmt::format("{}{}{}", kBlocks, layers[size_t(block)], param.substr(end));
}

}  // namespace

std::vector<int64_t> spread_layers(int64_t num_layers, int64_t count) {
  WEFT_CHECK(count >= 2 && count <= num_layers, "{} of {} layers", count, num_layers);
  std::vector<int64_t> layers;
  for (int64_t i = 0; i < count; ++i) layers.push_back((i * (num_layers - 1) + (count - 1) / 2) / (count - 1));
  return layers;
}

HfConfig draft_config(const HfConfig& model, Layers layers, DType dtype) {
  require_layers(layers, model.spec.num_layers);
  Json json = hf_config_of(model, dtype);
  for (const char* key : {"num_hidden_layers", "n_layer"})
    if (json.contains(key)) json[key] = layers.size();
  if (const auto types = json.find(kLayerTypes); types != json.end() && types->is_array()) {
    const Json all = std::exchange(*types, Json::array());
    for (const int64_t l : layers) types->push_back(all[size_t(l)]);
  }
  constexpr std::string_view kSource = "the draft's config.json";
  HfConfig draft = parse_hf_config(json, kSource);
  if (are_blocks(draft.spec, model.spec, layers)) return draft;
  write_out_layers(json, model.spec, layers);
  draft = parse_hf_config(json, kSource);
  if (!are_blocks(draft.spec, model.spec, layers))
    refuse(layers,
           fmt::format("a config.json of {} cannot say which of these have experts; the nearest that works: all "
                       "layers without experts before those with them",
                       model_type_of(model.spec.family)));
  return draft;
}

void write_draft(const WeightSource& model, const ModelSpec& draft, Layers layers, FileDType type,
                 SharedWriter& writer) {
  std::map<std::pair<std::string, int64_t>, size_t> places;  // by weight and first row
  for (size_t i = 0; i < model.tensors().size(); ++i)
    places[{model.tensors()[i].param, model.tensors()[i].first_row}] = i;
  for (const HfTensor& t : hf_tensors(draft)) {
    const auto place = places.find({weight_in_model(t.param, layers), t.first_row});
    WEFT_CHECK(place != places.end(), "{} has no place in the model", t.name);
    copy_tensor(model, place->second, type, writer, t.name);
    model.forget(place->second);
  }
  writer.sync();
  model.check_whole();
}

}  // namespace weft
