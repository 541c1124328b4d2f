// Adapters as PEFT keeps them: a folder with adapter_config.json and adapter_model.safetensors, beside the base model's
// own folder.      docs/formats/hugging_face.md
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "weft/models/model_spec.h"

namespace weft {

inline constexpr std::string_view kAdapterFile = "adapter_model.safetensors";
inline constexpr std::string_view kAllLinear = "all-linear";

struct PeftConfig {
  std::string base = {};  // base_model_name_or_path: the base model's folder; empty: the file names none
  int64_t rank = 8;
  double alpha = 16;
  bool rslora = false;
  bool dora = false;   // use_dora: magnitudes too
  double dropout = 0;  // lora_dropout
  // The score of a reward model (modules_to_save), or values for PPO (which only their tensors show), are saved in
  // full.
  bool trains_score = false;
  // How the base is kept beside it, which adapter_config.json has no field for (quantisation_of).
  WeightCodes base_codes = WeightCodes::none;
  // Modules by their last names, as "q_proj", or whole names; * stands for any text. kAllLinear: every matrix of
  // blocks, those of experts too, but not the rows of routers and gates.
  std::vector<std::string> targets = {std::string(kAllLinear)};
};

// Whether the folder is an adapter's: it has adapter_config.json and no config.json.
bool is_adapter_folder(const std::filesystem::path& folder);
// Throws FileError where the file is damaged or asks for what weft does not do, naming the field.
PeftConfig read_peft_config(const std::filesystem::path& folder);
// The base model's folder: as the file says it, seen from the current folder or from the adapter's. Throws FileError.
std::filesystem::path base_of_adapter(const std::filesystem::path& folder, const PeftConfig& config);
// Throws FileError where the base of a weft checkpoint's folder has not the weights that it was trained beside; does
// nothing where nothing says which these were.
void require_base(const std::filesystem::path& folder, const std::filesystem::path& base);
// Likewise of the teacher that a checkpoint's run learns from, and of a reference beside which it judges.
void require_teacher(const std::filesystem::path& folder, const std::filesystem::path& teacher);
void require_reference(const std::filesystem::path& folder, const std::filesystem::path& reference);
// adapter_config.json of the adapter of `model`, which has one.
nlohmann::json to_json(const PeftConfig& config, const ModelSpec& model);
// "quantization_config" of a config.json, as transformers has it for bitsandbytes: of weft/config.json of a checkpoint
// whose base is kept in codes, from which read_peft_config knows it. Null where it is not.
nlohmann::json quantisation_of(WeightCodes base_codes);

// What of the model has an adapter. Throws ConfigError, beginning with `source`, where a target is nothing that can
// have one.
AdapterSpec adapter_of(const ModelSpec& model, const PeftConfig& config, std::string_view source);

}  // namespace weft
