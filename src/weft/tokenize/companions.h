// The files beside a tokenizer that name its special tokens.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "weft/tokenize/added_tokens.h"

namespace weft {

// Of tokenizer_config.json and added_tokens.json; empty where they say nothing or are not there.
struct Companions {
  std::string beginning, end;     // bos_token, eos_token
  bool add_beginning = false;     // add_bos_token
  std::vector<AddedToken> added;  // added_tokens_decoder
};
// Throws FileError where a file is there but cannot be understood.
Companions read_companions(const std::filesystem::path& folder);

// The id of the token that ends a document: the one that `companions` name, else one of the usual names; -1: none.
int32_t end_of_document(const Companions& companions, const std::vector<AddedToken>& added);

}  // namespace weft
