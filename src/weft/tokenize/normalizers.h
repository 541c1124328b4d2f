// What is done to a text before it is split: normal forms, case, replacements.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/json.h"
#include "weft/tokenize/pattern.h"
#include "weft/tokenize/unicode.h"

namespace weft {

// One step: the new text. It may give back what it was given. Immutable; any thread may call it, with its own space.
using Normalizer = std::function<std::string(std::string, PatternSpace&)>;

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
  // The longest beginning of `text` that has a replacement: its bytes; 0: there is none.
  size_t find(std::string_view text, std::string_view& replacement) const;
  // Whether anything in the map begins so.
  bool begins_any(std::string_view beginning) const;

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace weft
