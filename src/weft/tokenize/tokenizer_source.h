// What a tokenizer is read from, for programs that need more than ids.
#pragma once
#include <filesystem>
#include <string>

#include "weft/base/json.h"
#include "weft/tokenize/companions.h"

namespace weft {

struct TokenizerSource {
  nlohmann::json json = {};        // tokenizer.json, or what vocab.json with merges.txt amounts to ...
  std::string sentencepiece = {};  // ... or, where this is not empty, the bytes of a SentencePiece model
  Companions companions = {};
};

// `path`: "byte", or as read_tokenizer takes it; a folder's tokenizer.model is taken rather than a tokenizer.json
// that was made of it. Throws FileError, and ConfigError where the tokenizer is of another kind (ranks, vocab.txt).
TokenizerSource read_tokenizer_source(const std::filesystem::path& path);

}  // namespace weft
