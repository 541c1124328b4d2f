// A recipe for a model, devices and a purpose, with the reason of each choice beside it: the layout is searched for,
// and what it is searched for with (lengths, batches, learning rates) follows published runs, which the comments name.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "weft/forecast/layout_search.h"

namespace weft {

enum class Purpose : uint8_t { pretrain, finetune, lora, long_context, experts, many_devices };
constexpr auto names_of(Purpose) {
  return std::array{"pretrain"sv, "finetune"sv, "lora"sv, "long-context"sv, "experts"sv, "many-devices"sv};
}

struct NewRecipeSpec {
  std::string model;  // as the recipe is to name it
  Purpose purpose = Purpose::pretrain;
  std::vector<std::string> data;
  int64_t devices = 1;
  int64_t seq_length = 0;  // 0: as the purpose has it
  int threads = 1;
};

struct NewRecipe {
  Recipe recipe;
  std::string toml;  // parse_recipe of it gives the recipe
  RunForecast forecast;
};

// Throws ConfigError where the model is none for the purpose, or where nothing of it fits on these devices, with what
// comes nearest; and what planning throws.
NewRecipe new_recipe(const NewRecipeSpec& spec, const HfConfig& config, const ClusterSpec& cluster,
                     const Profiles& profiles);

}  // namespace weft
