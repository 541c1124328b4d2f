// vocab.json and merges.txt (or encoder.json and vocab.bpe): what GPT-2 and its kin came with.
#pragma once
#include <string_view>

#include "weft/base/json.h"
#include "weft/tokenize/companions.h"

namespace weft {

// The tokenizer.json that says the same as a vocabulary and merges ("a b" a line, comments at the top begin with
// "#version"). `merges_source` begins messages. Throws FileError.
nlohmann::json as_tokenizer_json(nlohmann::json vocabulary, std::string_view merges, const std::string& merges_source,
                                 const Companions& companions);

}  // namespace weft
