// How a SentencePiece model normalizes a text before it looks for pieces.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "weft/tokenize/byte_trie.h"
#include "weft/tokenize/normalizers.h"
#include "weft/tokenize/sentencepiece_spec.h"

namespace weft {

// Characters by the model's map, spaces as '▁', one in front: the text that its library makes. Immutable.
class SentencePieceText {
 public:
  // Throws FileError, beginning with `source`, where the map of characters is broken.
  SentencePieceText(const SentencePieceSpec& spec, const std::string& source);

  // Linear in the text, which may be no UTF-8: each broken byte is U+FFFD then.
  std::string made_of(std::string_view text) const;
  // Pieces that stand for themselves wherever they are (user-defined symbols): with their ids.
  const ByteTrie& symbols() const { return symbols_; }

 private:
  // The replacement of the first `bytes` bytes of `text`.
  std::string_view first_part(std::string_view text, size_t& bytes) const;
  bool is_plain(char c) const { return uint8_t(c) < plain_.size() && plain_[uint8_t(c)]; }
  // The end of the characters from `at` on that stand for themselves.
  size_t end_of_plain(std::string_view text, size_t at) const;
  std::string_view without_spaces_before(std::string_view text) const;

  std::optional<CharacterMap> map_;
  ByteTrie symbols_;
  bool suffix_, prefix_, squeezes_;
  std::string_view space_;
  // Characters that stand for themselves if another of ASCII follows, or nothing.
  std::array<bool, 128> plain_{};
};

}  // namespace weft
