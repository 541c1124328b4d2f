// A Hugging Face config.json as a ModelSpec. What weft does with each field: docs/formats/hugging_face.md
#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/models/model_spec.h"
#include "weft/models/peft.h"
#include "weft/tensor/dtype.h"

namespace weft {

struct HfConfig {
  ModelSpec spec;
  nlohmann::json json;                           // as it was read
  std::vector<std::string> warnings;             // one for each field that weft does not know and that looks harmless
  std::optional<PeftConfig> adapter = {};        // of which `spec` has the adapter
  std::shared_ptr<const HfConfig> teacher = {};  // of the frozen model that a run has beside it to learn from
  int64_t teacher_top = 0;                       // or so many of its logits at each token, that are stored
  bool has_folder = true;  // false: a model that was made up, whose weights are random whatever path a recipe names
};

// Families: kFamilies. Fields that are absent have the values that transformers gives them; sizes must be there, and
// dropouts of GPT-2 are 0 (transformers: 0.1). `source` begins every message. Throws FileError where a field has the
// wrong type or range or is missing; ConfigError, naming the field and its value, where it asks for something that weft
// does not do. No config makes it allocate more than a few megabytes.
HfConfig parse_hf_config(nlohmann::json json, std::string_view source);
// Makes the module of multi-token prediction a part of the model, with that factor of its loss; 0: it is passed over.
// Throws ConfigError where there is not one.
void train_mtp(HfConfig& config, double loss_coef);
// Puts a score in place of the head over the vocabulary, in config.json too; nothing where it has one.
void make_reward_model(HfConfig& config);
// Throws ConfigError, beginning with `what`, where the model has a score instead.
void require_vocabulary_head(const ModelSpec& model, std::string_view what);
// Freezes the model, and gives it an adapter. Throws ConfigError, beginning with `source`, where it cannot have it.
void adapt(HfConfig& config, PeftConfig adapter, std::string_view source);
// Takes a model's folder, the config file itself, or a GGUF file. Of an adapter's folder: the base model's, with that
// adapter.
HfConfig read_hf_config(const std::filesystem::path& folder_or_file);

// Throws ConfigError, beginning with `what`, if the path is a file of weights but no GGUF file; the message names the
// folder to give.
void require_no_file_of_weights(const std::filesystem::path& path, std::string_view what);
// Throws ConfigError, which names the newest checkpoint, where `path` is a run's folder and no model itself.
void require_no_run_folder(const std::filesystem::path& path, std::string_view what);

// The config.json to stand beside weights written as `dtype`: the one that was read, telling that type, and an
// architecture where none was named (other programs choose their class by it); nothing of codes.
nlohmann::json hf_config_of(const HfConfig& config, DType dtype);

// "llama": the family as model_type names it.
std::string_view model_type_of(Family family);

}  // namespace weft
