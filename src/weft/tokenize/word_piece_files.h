// vocab.txt: what BERT and its kin came with, a token a line.
#pragma once
#include <filesystem>
#include <string_view>

#include "weft/base/json.h"
#include "weft/tokenize/companions.h"

namespace weft {

// The tokenizer.json that says the same as vocab.txt and the tokenizer_config.json beside it (do_lower_case,
// strip_accents, tokenize_chinese_chars and the special tokens; without it, those of BERT in lower case). Throws
// FileError.
nlohmann::json vocabulary_as_tokenizer_json(std::string_view vocabulary, const std::filesystem::path& file,
                                            const Companions& companions);

}  // namespace weft
