#include "weft/tokenize/byte_alphabet.h"

#include "weft/tokenize/unicode.h"

namespace weft {

ByteAlphabet::ByteAlphabet() {
  byte_.fill(-1);
  char32_t next = 0x100;
  for (char32_t b = 0; b < 256; ++b) {
    const bool itself = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
    character_[b] = itself ? b : next++;
    byte_[character_[b]] = int(b);
  }
}

std::string ByteAlphabet::to_text(std::string_view bytes) const {
  std::string text;
  for (unsigned char c : bytes) append_character(text, character_[c]);
  return text;
}

std::optional<std::string> ByteAlphabet::to_bytes(std::string_view text) const {
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const Character c = first_character(text.substr(at));
    if (c.code >= byte_.size() || byte_[c.code] < 0) return {};
    bytes += char(byte_[c.code]);
    at += c.bytes;
  }
  return bytes;
}

}  // namespace weft
