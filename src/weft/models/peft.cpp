#include "weft/models/peft.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>

#include "weft/base/error.h"
#include "weft/base/hashing.h"
#include "weft/base/is_there.h"
#include "weft/base/json.h"
#include "weft/base/nearest.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/gguf/gguf_file.h"
#include "weft/models/fingerprint.h"
#include "weft/models/hf_names.h"
#include "weft/models/transformer.h"
#include "weft/nn/embedding.h"
#include "weft/nn/vocabulary_head.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfig = "adapter_config.json", kWeight = ".weight";

std::vector<std::string> targets_in(const JsonFields& fields) {
  const nlohmann::json* value = fields.find("target_modules");
  if (value != nullptr && *value == kAllLinear) return {std::string(kAllLinear)};
  std::vector<std::string> targets;
  if (value != nullptr && value->is_array())
    for (const nlohmann::json& name : *value) {
      if (!name.is_string()) fields.fail("target_modules", "a list of names of modules");
      targets.push_back(name.get<std::string>());
    }
  if (targets.empty()) fields.fail("target_modules", "a list of names of modules, or \"all-linear\"");
  return targets;
}

// Fields that change what an adapter is, and which weft does not have.
void refuse_others(const JsonFields& fields) {
  if (fields.string("peft_type") != "LORA") fields.fail("peft_type", "\"LORA\", the adapters that weft has");
  if (fields.string("bias", "none") != "none")
    fields.fail("bias", "\"none\": weft keeps the model's biases as they are");
  if (const nlohmann::json* init = fields.find("init_lora_weights"); init != nullptr && init->is_string())
    for (const char* kind : {"pissa", "olora", "corda", "loftq"})
      if (init->get<std::string>().starts_with(kind))
        fields.fail("init_lora_weights",
                    "an adapter of the base as it is: this one belongs to a base that was changed");
  for (const char* key : {"alora_invocation_tokens", "layers_to_transform", "rank_pattern", "alpha_pattern",
                          "target_parameters", "layer_replication", "exclude_modules"})
    if (const nlohmann::json* value = fields.find(key); value != nullptr && !value->empty())
      fields.fail(key, "nothing: weft has adapters of one rank in all layers");
}

// PEFT names what the head of a sequence classifier may be called; in weft's families it is the score.
bool trains_score_in(const JsonFields& fields) {
  constexpr const char* kKey = "modules_to_save";
  const nlohmann::json* value = fields.find(kKey);
  if (value == nullptr || value->empty()) return false;
  bool has_score = false, has_others = !value->is_array();
  for (const nlohmann::json& name : *value) {
    has_score = has_score || name == "score";
    has_others = has_others || (name != "score" && name != "classifier");
  }
  if (!has_score || has_others)
    fields.fail(kKey, "nothing, or [\"score\"] of a reward model: weft trains no other module in full beside adapters");
  return true;
}

// What weft/config.json of a checkpoint says.
WeightCodes base_codes_in(const fs::path& folder) {
  const fs::path file = folder / "weft" / "config.json";
  if (!is_there(file)) return WeightCodes::none;
  const nlohmann::json json = read_json_file(file, {.max_bytes = 4 << 20});
  const auto found = json.find(kQuantisationKey);
  if (found == json.end()) return WeightCodes::none;
  for (const WeightCodes codes : {WeightCodes::nf4, WeightCodes::int8})
    if (*found == quantisation_of(codes)) return codes;
  throw FileError(
      fmt::format("{}: \"{}\" is none that weft writes: {}", file.string(), kQuantisationKey, found->dump()));
}

bool matches(const std::string& module, const std::string& target) {
  if (target.find('*') != target.npos) return fnmatch(target.c_str(), module.c_str(), 0) == 0;
  return module == target || (module.ends_with(target) && module[module.size() - target.size() - 1] == '.');
}

// Why a weight of the model has no adapter; "" where it may have one.
std::string why_not(const HfTensor& tensor, const ParamSpec& weight, const ModelSpec& model, bool magnitudes) {
  const bool is_table = weight.name == Embedding::kTable;
  if (is_table && model.tied_head)
    return "is the head's matrix too (tie_word_embeddings), which an adapter of the embedding alone would leave as it "
           "is; the nearest that works: adapter.targets without it";
  if (is_table || weight.name == VocabularyHead::kMatrix)
    return magnitudes ? "is an embedding or a head, whose rows' lengths are not trained yet; the nearest that works: "
                        "adapter.kind = \"lora\", beside a base in codes \"qlora\""
                      : "";
  if (!weight.linear) return "is no matrix that a block multiplies with";
  if (weight.place.experts_are_cut() && tensor.slices > 1)
    return "has the matrices of all experts in one tensor, which have no adapters yet; the nearest that works: the "
           "projections of attention";
  if (weight.place.experts_are_cut() && magnitudes)
    return "is of an expert, whose rows' lengths are not trained yet; the nearest that works: adapter.kind = \"lora\" "
           "(beside a base in codes \"qlora\"), or adapter.targets without it";
  if (weight.name.ends_with("router.weight"))
    return "is of a router, which has no adapter; the nearest that works: the projections of attention";
  if (weight.name.ends_with("shared_gate.weight"))
    return "is a gate, which has no adapter; the nearest that works: the projections of attention";
  return tensor.name.ends_with(kWeight) ? "" : "is no matrix";
}

std::string module_of(const HfTensor& tensor) {
  return {tensor.name, 0, tensor.name.size() - (tensor.name.ends_with(kWeight) ? kWeight.size() : 0)};
}

// Whether a target can name it: a bias is a part of a module.
bool is_module(const HfTensor& tensor, const ParamSpec& weight) {
  return tensor.name.ends_with(kWeight) || weight.linear;
}

// What to name in place of a target that no module has: "; did you mean ...?", or all last names that may be targets.
std::string advice_on_target(const std::string& target, const ModelSpec& model,
                             const std::map<std::string, ParamSpec>& weights, bool magnitudes) {
  std::vector<std::string> modules;
  std::set<std::string> last_names;
  for (const HfTensor& tensor : hf_tensors(model)) {
    const ParamSpec& weight = weights.at(tensor.param);
    if (!is_module(tensor, weight) || !why_not(tensor, weight, model, magnitudes).empty()) continue;
    modules.push_back(module_of(tensor));
    last_names.insert(modules.back().substr(modules.back().rfind('.') + 1));
  }
  const size_t last = target.rfind('.') + 1;  // 0 where there is none
  std::vector<std::string> known(last_names.begin(), last_names.end());
  if (last == 0) known.emplace_back(kAllLinear);
  const std::string near = nearest_name(target.substr(last), known);
  if (near.empty()) return fmt::format("; it has {}", fmt::join(last_names, ", "));
  const std::string whole = target.substr(0, last) + near;
  const bool is_one = std::any_of(modules.begin(), modules.end(), [&](const auto& m) { return matches(m, whole); });
  return fmt::format("; did you mean {}?", in_quotes(is_one ? whole : near));
}

// A target that is of an expert beside which others have none; "" where there is none.
std::string lone_expert(const AdapterSpec& adapter, const std::map<std::string, ParamSpec>& weights, int64_t experts) {
  std::map<std::string, std::vector<const AdapterSpec::Target*>> all;  // of each weight
  for (const AdapterSpec::Target& t : adapter.targets)
    if (t.of_expert) all[t.weight].push_back(&t);
  for (const auto& [weight, these] : all) {
    const int64_t rows = weights.at(weight).shape[0] / experts;
    const size_t each = these.size() / size_t(experts);
    if (each * size_t(experts) != these.size()) return these[0]->module;
    for (size_t i = each; i < these.size(); ++i)
      if (these[i]->rows.first != these[i - each]->rows.first + rows) return these[i]->module;
  }
  return "";
}

}  // namespace

bool is_adapter_folder(const fs::path& folder) {
  return is_there(folder / kConfig) && !is_there(folder / "config.json");
}

PeftConfig read_peft_config(const fs::path& folder) {
  const fs::path file = folder / kConfig;
  const nlohmann::json json = read_json_file(file, {.max_bytes = 4 << 20});
  const JsonFields fields(json, file.string());
  refuse_others(fields);
  return {.base = fields.string("base_model_name_or_path", ""),
          .rank = fields.integer("r", {.min = 1, .max = 1 << 20}),
          .alpha = fields.number("lora_alpha", {.min = 1e-30, .max = 1e6}),
          .rslora = fields.flag("use_rslora", false),
          .dora = fields.flag("use_dora", false),
          .dropout = fields.number("lora_dropout", {.min = 0, .max = 1}, 0.0),
          .trains_score = trains_score_in(fields),
          .base_codes = base_codes_in(folder),
          .targets = targets_in(fields)};
}

fs::path base_of_adapter(const fs::path& folder, const PeftConfig& config) {
  const fs::path file = folder / kConfig;
  if (config.base.empty())
    throw FileError(fmt::format("{}: \"base_model_name_or_path\" names no model: write the folder of the base there",
                                file.string()));
  for (const fs::path& base : {fs::path(config.base), folder / config.base})
    if (is_there(base / "config.json") || is_gguf(base)) return base;
  throw FileError(
      fmt::format("{}: \"base_model_name_or_path\": there is no config.json in {}, seen from {}: put the "
                  "base there, or a link to it",
                  file.string(), in_quotes(config.base), fs::current_path().string()));
}

namespace {

void require_weights(const fs::path& folder, const char* what, const fs::path& weights) {
  const fs::path state = folder / "weft" / "state.json";
  if (!is_there(state)) return;
  const nlohmann::json json = read_json_file(state);
  const JsonFields fields(json, state.string());
  if (!fields.has(what) || fields.string(what).empty()) return;
  if (!has_fingerprint(weights, fields.string(what)))
    throw FileError(
        fmt::format("{}: was trained beside other weights than those in {}: put the {} there that it "
                    "belongs to",
                    folder.string(), weights.string(), what));
}

}  // namespace

void require_base(const fs::path& folder, const fs::path& base) { require_weights(folder, "base", base); }
void require_teacher(const fs::path& folder, const fs::path& teacher) { require_weights(folder, "teacher", teacher); }
void require_reference(const fs::path& folder, const fs::path& reference) {
  require_weights(folder, "reference", reference);
}

AdapterSpec adapter_of(const ModelSpec& model, const PeftConfig& config, std::string_view source) {
  const auto refuse = [&](const std::string& why) { throw ConfigError(fmt::format("{}: {}", source, why)); };
  if (model.has_mtp()) refuse("a module of multi-token prediction cannot be trained beside adapters yet");
  ModelSpec plain = model;
  plain.adapter.reset();
  std::map<std::string, ParamSpec> weights;
  for (ParamSpec& weight : all_params(plain)) weights.emplace(weight.name, std::move(weight));
  AdapterSpec adapter{.rank = config.rank,
                      .scale = config.alpha / (config.rslora ? std::sqrt(double(config.rank)) : double(config.rank)),
                      .dropout = config.dropout,
                      .magnitudes = config.dora,
                      .base_codes = config.base_codes,
                      .trains_score = config.trains_score};
  if (config.trains_score && model.head != HeadKind::score && !model.predicts_values)
    refuse("the model has no score to train beside adapters");
  const bool all = config.targets == std::vector{std::string(kAllLinear)};
  std::vector<bool> used(config.targets.size());
  for (const HfTensor& tensor : hf_tensors(plain)) {
    const ParamSpec& weight = weights.at(tensor.param);
    if (!is_module(tensor, weight)) continue;
    const std::string module = module_of(tensor);
    bool wanted = all && weight.linear && !weight.always_numbers;
    for (size_t i = 0; i < config.targets.size() && !all; ++i) {
      if (!matches(module, config.targets[i])) continue;
      wanted = used[i] = true;
    }
    if (!wanted) continue;
    if (const std::string why = why_not(tensor, weight, model, config.dora); !why.empty())
      refuse(all ? fmt::format("\"{}\": {} {}; name the modules that shall have adapters", kAllLinear, module, why)
                 : fmt::format("{} {}", module, why));
    adapter.targets.push_back({.weight = tensor.param,
                               .rows = {tensor.first_row, tensor.rows},
                               .module = module,
                               .of_expert = weight.place.experts_are_cut()});
  }
  if (const std::string module = lone_expert(adapter, weights, model.experts.count); !module.empty())
    refuse(
        fmt::format("{} has an adapter, and another expert of its block has none; the nearest that works: all "
                    "experts of a block, as \"*.experts.*\"",
                    module));
  if (config.targets.empty()) refuse("names no module");
  for (size_t i = 0; i < used.size() && !all; ++i)
    if (!used[i])
      refuse(fmt::format("the model has no module {}{}", in_quotes(config.targets[i]),
                         config.targets[i] == "lm_head" && model.tied_head
                             ? ": its head is the embedding's table (tie_word_embeddings)"
                             : advice_on_target(config.targets[i], plain, weights, config.dora)));
  return adapter;
}

nlohmann::json quantisation_of(WeightCodes base_codes) {
  if (base_codes == WeightCodes::none) return nullptr;
  if (base_codes == WeightCodes::int8) return {{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}};
  return {{"quant_method", "bitsandbytes"},
          {"load_in_4bit", true},
          {"bnb_4bit_quant_type", "nf4"},
          {"bnb_4bit_use_double_quant", true}};
}

nlohmann::json to_json(const PeftConfig& config, const ModelSpec& model) {
  nlohmann::json modules = nlohmann::json::array();
  for (const AdapterSpec::Target& target : model.adapter->targets) {
    nlohmann::json name = target.module.substr(target.module.rfind('.') + 1);
    if (std::find(modules.begin(), modules.end(), name) == modules.end()) modules.push_back(std::move(name));
  }
  const bool by_last_names = std::none_of(config.targets.begin(), config.targets.end(), [](const std::string& target) {
    return target.find_first_of("*.") != target.npos;
  });
  if (!by_last_names) {
    modules.clear();
    for (const AdapterSpec::Target& target : model.adapter->targets) modules.push_back(target.module);
  }
  nlohmann::json in_full = nullptr, task = "CAUSAL_LM";
  // Values are none of the modules that PEFT would find in a model of text.
  if (config.trains_score && model.head == HeadKind::score) in_full = {"score"}, task = "SEQ_CLS";
  return {{"peft_type", "LORA"},
          {"task_type", std::move(task)},
          {"base_model_name_or_path", config.base},
          {"r", config.rank},
          {"lora_alpha", config.alpha},
          {"lora_dropout", config.dropout},
          {"use_rslora", config.rslora},
          {"use_dora", config.dora},
          {"bias", "none"},
          {"fan_in_fan_out", model.family == Family::gpt2},
          {"init_lora_weights", true},
          {"target_modules", std::move(modules)},
          {"modules_to_save", std::move(in_full)},
          {"inference_mode", true}};
}

}  // namespace weft
