// The "model" of a tokenizer.json.
#pragma once
#include <memory>
#include <string>

#include "weft/base/json.h"
#include "weft/tokenize/model.h"

namespace weft {

// `of_bytes`: pieces come as bytes (the pre-tokenizer ends with ByteLevel). Throws FileError.
std::unique_ptr<TokenModel> read_token_model(const nlohmann::json& model, const std::string& source, bool of_bytes);

}  // namespace weft
