// The tokens at which a model's files say that a text ends.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "weft/models/hf_config.h"
#include "weft/tokenize/tokenizer.h"

namespace weft {

// eos_token_id of generation_config.json (in the model's folder, else in that of an adapter's base) and of config.json,
// each an id or a list of ids; and what the tokenizer puts behind a document. Ids that this tokenizer takes for
// ordinary text are left out: the files were made for another one. Throws FileError where a file is broken.
std::vector<int32_t> end_tokens_of(const std::filesystem::path& folder, const HfConfig& config,
                                   const Tokenizer& tokenizer);

}  // namespace weft
