// The files beside a tokenizer that name its special tokens.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/json.h"
#include "weft/tokenize/added_tokens.h"

namespace weft {

// What tokenizer_config.json says and, if there is no tokenizer.json, special_tokens_map.json and added_tokens.json;
// empty where they say nothing or are missing.
struct Companions {
  std::string beginning, end;  // bos_token, eos_token
  // add_bos_token, add_eos_token: whether a text gets them; none: it is not said.
  std::optional<bool> add_beginning, add_end;
  std::vector<AddedToken> added;  // added_tokens_decoder, added_tokens.json

  bool lists(std::string_view content) const;
};
// Throws FileError where a file is there but cannot be understood.
Companions read_companions(const std::filesystem::path& folder);
// The same of the content of a tokenizer_config.json; `source` begins messages.
Companions companions_of(const nlohmann::json& config, const std::string& source);

// An added token as these files and tokenizer.json write it; `normalized` where it does not say. Throws FileError.
AddedToken added_token_of(const JsonFields& token, int32_t id, bool normalized);
// "added_tokens" of a tokenizer.json.
nlohmann::json as_json(const std::vector<AddedToken>& added);

// The id of the token that ends a document: the one that `companions` name, else one of the usual names; -1: none.
int32_t end_of_document(const Companions& companions, const std::vector<AddedToken>& added);

}  // namespace weft
