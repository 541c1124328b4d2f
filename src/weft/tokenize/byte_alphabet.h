// The printable characters that stand for bytes in the vocabularies of byte-level tokenizers.    Radford et al. 2019
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

// '!' .. '~', U+A1 .. U+AC and U+AE .. U+FF stand for themselves; the others, in order, are U+0100 and on.
class ByteAlphabet {
 public:
  ByteAlphabet();
  // The bytes as characters: " a" is "Ġa".
  std::string to_text(std::string_view bytes) const;
  // The reverse; nothing where a character stands for no byte.
  std::optional<std::string> to_bytes(std::string_view text) const;

 private:
  std::array<char32_t, 256> character_;
  std::array<int, 0x144> byte_;  // of a character; -1: none
};

}  // namespace weft
