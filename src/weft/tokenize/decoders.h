// How tokens become text again.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "weft/base/json.h"

namespace weft {

// One step over all tokens of a text. Immutable; any thread may call it.
using Decoder = std::function<std::vector<std::string>(std::vector<std::string>)>;

struct Decoders {
  std::vector<Decoder> steps;
  bool only_bytes = false;        // ByteLevel alone: the tokens' bytes one after the other
  bool joined_by_spaces = false;  // there is no decoder
};

// The "decoder" of a tokenizer.json. Throws FileError for what weft does not know, by name.
Decoders read_decoders(const nlohmann::json& decoder, const std::string& source);

}  // namespace weft
