// What a tokenizer's own rules put around a text.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/json.h"

namespace weft {

struct Surroundings {
  std::vector<int32_t> before, after;
};

// The "post_processor" of a tokenizer.json, for one text (not for pairs). Throws FileError for what weft does not know.
Surroundings read_post_processor(const nlohmann::json& post_processor, const std::string& source);

}  // namespace weft
