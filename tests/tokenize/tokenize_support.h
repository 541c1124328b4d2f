// What tests of tokenizers share.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support.h"
#include "weft/base/json.h"
#include "weft/tokenize/tokenizer.h"

namespace weft::testing {

using Ids = std::vector<int32_t>;

inline Ids ids_of(const Tokenizer& tokenizer, std::string_view text, SpecialText special = SpecialText::kText) {
  Ids ids;
  tokenizer.encode(text, ids, special);
  return ids;
}
inline std::string text_of(const Tokenizer& tokenizer, const Ids& ids) {
  return tokenizer.decode(ids, Tokenizer::Specials::kShown);
}

// A tokenizer.json of this text.
inline std::unique_ptr<Tokenizer> tokenizer_of(const std::string& json) {
  TempDir dir;
  spill(dir / "tokenizer.json", json);
  return read_tokenizer(dir / "tokenizer.json");
}
inline std::string refusal_of(const std::string& json) {
  return error_of([&] { tokenizer_of(json); });
}

}  // namespace weft::testing
