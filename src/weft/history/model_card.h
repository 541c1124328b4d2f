// README.md of a model: a Hugging Face model card, made of what is recorded and nothing else.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "weft/history/model_origin.h"
#include "weft/models/hf_config.h"

namespace weft {

// Stands in each card that weft wrote, so that it knows it again.
inline constexpr const char* kCardMark = "<!-- written by weft card -->";

struct CardFacts {
  const ModelOrigin& origin;
  const HfConfig& config;
  std::map<std::string, double> results = {};  // "piqa.acc" and so on
  std::string licence = {};                    // of the model; empty: not known
  std::optional<double> watts = {};            // that its machine drew in the mean; none: not known
  double grams_per_kwh = 0;                    // of CO2
  std::string source_of_grams = {};            // where that number is from
};

// What is not recorded is said to be unknown. Paths are cut to their last names.
std::string model_card(const CardFacts& facts);

}  // namespace weft
