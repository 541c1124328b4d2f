// The files of vocabularies that tokenizers had before tokenizer.json.
#pragma once
#include <filesystem>
#include <string_view>

#include "weft/base/json.h"
#include "weft/tokenize/companions.h"

namespace weft {

// vocab.json and merges.txt (or encoder.json and vocab.bpe): what GPT-2 and its kin came with.
// The tokenizer.json that says the same as a vocabulary and merges ("a b" a line, comments at the top begin with
// "#version"). `merges_source` begins messages. Throws FileError.
nlohmann::json as_tokenizer_json(nlohmann::json vocabulary, std::string_view merges, const std::string& merges_source,
                                 const Companions& companions);

// vocab.txt: what BERT and its kin came with, a token a line.
// The tokenizer.json that says the same as vocab.txt and the tokenizer_config.json beside it (do_lower_case,
// strip_accents, tokenize_chinese_chars and the special tokens; without it, those of BERT in lower case). Throws
// FileError.
nlohmann::json vocabulary_as_tokenizer_json(std::string_view vocabulary, const std::filesystem::path& file,
                                            const Companions& companions);

}  // namespace weft
