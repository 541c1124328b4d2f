// What is done to a text before it is split: normal forms, case, replacements.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/json.h"
#include "weft/tokenize/unicode.h"

namespace weft {

// One step: the new text. It may give back what it was given. Immutable; any thread may call it.
using Normalizer = std::function<std::string(std::string)>;

// The steps of the "normalizer" of a tokenizer.json, null for none. Throws FileError for one that weft does not know,
// by name.
std::vector<Normalizer> read_normalizers(const nlohmann::json& normalizer, const std::string& source,
                                         std::shared_ptr<const CharacterTable> table);

// A map of characters to others, as SentencePiece compiles it: a double array (Darts-clone), then the replacements,
// each ended by a NUL. Throws FileError where the bytes cannot be such a map; no place of it is read unchecked.
class CharacterMap {
 public:
  CharacterMap(std::string bytes, const std::string& source);
  // Grapheme by grapheme: a short one that begins with something in the map is replaced, else each of its characters.
  std::string apply(std::string_view text) const;

 private:
  // The replacement of the longest beginning of `text` that has one; false: there is none.
  bool find(std::string_view text, std::string_view& replacement) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace weft
