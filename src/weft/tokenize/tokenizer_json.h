// Hugging Face's tokenizer.json.
#pragma once
#include <memory>
#include <string>

#include "weft/base/json.h"
#include "weft/tokenize/companions.h"
#include "weft/tokenize/pipeline.h"

namespace weft {

inline constexpr JsonLimits kTokenizerJson{.max_bytes = 256 << 20, .max_depth = 32};

struct TokenizerJson {
  std::string source;       // begins messages
  std::string fingerprint;  // of the file's content
  std::shared_ptr<const CharacterTable> table;
};
// Throws FileError for what is broken, or for a
// component that weft does not know, by name.
std::unique_ptr<Tokenizer> read_tokenizer_json(const nlohmann::json& json, const TokenizerJson& file,
                                               const Companions& companions);

}  // namespace weft
