#include <cstring>

#include "weft/base/ascii.h"
#include "weft/base/error.h"
#include "weft/tokenize/normalizers.h"

namespace weft {
namespace {

// A unit of a double array.                        Yata, "Darts-clone: a clone of Darts", 2008
bool has_leaf(uint32_t unit) { return unit >> 8 & 1; }
uint32_t value_of(uint32_t unit) { return unit & 0x7fffffff; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000ff; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

constexpr size_t kShortGrapheme = 6;  // bytes

}  // namespace

CharacterMap::CharacterMap(std::string bytes, const std::string& source) {
  uint32_t tree_bytes = 0;
  if (bytes.size() >= sizeof tree_bytes) std::memcpy(&tree_bytes, bytes.data(), sizeof tree_bytes);
  if (tree_bytes == 0 || tree_bytes % 4 != 0 || tree_bytes > bytes.size() - sizeof tree_bytes)
    throw FileError(fmt::format("{}: {} bytes are no map of characters (a tree of {} bytes, and texts)", source,
                                bytes.size(), tree_bytes));
  units_.resize(tree_bytes / 4);
  std::memcpy(units_.data(), bytes.data() + sizeof tree_bytes, tree_bytes);
  replacements_ = bytes.substr(sizeof tree_bytes + tree_bytes);
}

size_t CharacterMap::find(std::string_view text, std::string_view& replacement) const {
  size_t at = offset_of(units_[0]), found = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = uint8_t(text[i]);
    if (c == 0) return found;
    at ^= c;
    if (at >= units_.size() || label_of(units_[at]) != c) return found;
    const uint32_t unit = units_[at];
    at ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (at >= units_.size() || value_of(units_[at]) > replacements_.size()) return found;
    replacement = std::string_view(replacements_).substr(value_of(units_[at]));
    replacement = replacement.substr(0, replacement.find('\0'));
    found = i + 1;
  }
  return found;
}

bool CharacterMap::begins_any(std::string_view beginning) const {
  size_t at = offset_of(units_[0]);
  for (const char byte : beginning) {
    const auto c = uint8_t(byte);
    at ^= c;
    if (c == 0 || at >= units_.size() || label_of(units_[at]) != c) return false;
    at ^= offset_of(units_[at]);
  }
  return true;
}

std::string CharacterMap::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size() + text.size() / 16);
  std::string_view replacement;
  while (!text.empty()) {
    const bool alone = is_ascii(text[0]) && text[0] != '\r' && (text.size() == 1 || is_ascii(text[1]));
    const std::string_view grapheme = text.substr(0, alone ? 1 : first_grapheme(text));
    text.remove_prefix(grapheme.size());
    if (grapheme.size() < kShortGrapheme && find(grapheme, replacement) > 0) {
      out += replacement;
      continue;
    }
    for (size_t at = 0, bytes; at < grapheme.size(); at += bytes) {
      bytes = first_character(grapheme.substr(at)).bytes;
      const std::string_view character = grapheme.substr(at, bytes);
      out += find(character, replacement) > 0 ? replacement : character;
    }
  }
  return out;
}

}  // namespace weft
