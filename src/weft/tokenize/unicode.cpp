#include "weft/tokenize/unicode.h"

#include <algorithm>

#include "weft/base/utf8.h"

namespace weft {
namespace {

bool is_tail(char byte) { return (uint8_t(byte) & 0xc0) == 0x80; }

// How many bytes of `text`, which is broken at its beginning, a decoder takes for one broken character.
size_t broken_bytes(std::string_view text) {
  size_t bytes = 1;
  // A longer beginning is still a part of a character if some ending makes it one.
  for (; bytes < std::min<size_t>(3, text.size()); ++bytes) {
    const std::string begin(text.substr(0, bytes + 1));
    bool can_end = false;
    for (const char* rest : {"\x80", "\x80\x80"}) can_end |= utf8_error(begin + rest) == std::string_view::npos;
    if (!can_end) break;
  }
  return bytes;
}

}  // namespace

Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return uint32_t(uint8_t(text[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const auto tails = [&](size_t n) {
    if (text.size() <= n) return false;
    for (size_t i = 1; i <= n; ++i)
      if (!is_tail(text[i])) return false;
    return true;
  };
  if (lead >= 0xc2 && lead < 0xe0 && tails(1)) return {(lead & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (lead >= 0xe0 && lead < 0xf0 && tails(2))
    return {(lead & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  if (lead >= 0xf0 && lead < 0xf5 && tails(3))
    return {(lead & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f), 4};
  return {kReplacement, 1};
}

Character last_character(std::string_view text) {
  for (size_t bytes = 1; bytes <= std::min<size_t>(4, text.size()); ++bytes) {
    if (is_tail(text[text.size() - bytes])) continue;
    const Character c = first_character(text.substr(text.size() - bytes));
    if (c.bytes == bytes) return c;
    break;
  }
  return {kReplacement, 1};
}

void append_character(std::string& text, char32_t code) {
  const auto add = [&](char32_t byte) { text += char(byte); };
  const auto add_tail = [&](int shift) { add(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return add(code);
  if (code < 0x800) return add(0xc0 | code >> 6), add_tail(0);
  if (code < 0x10000) return add(0xe0 | code >> 12), add_tail(6), add_tail(0);
  if (code < 0x110000) add(0xf0 | code >> 18), add_tail(12), add_tail(6), add_tail(0);
}

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !is_tail(c); });
}

std::string_view well_formed(std::string_view text, std::string& copy) {
  size_t error = utf8_error(text);
  if (error == std::string_view::npos) return text;
  copy.clear();
  for (; error != std::string_view::npos; error = utf8_error(text)) {
    copy += text.substr(0, error);
    append_character(copy, kReplacement);
    text.remove_prefix(error + broken_bytes(text.substr(error)));
  }
  copy += text;
  return copy;
}

bool is_white_space(char32_t c) {  // PropList.txt
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) ||
         c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_surely_nfc(const CharacterTable& table, std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (uint8_t(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Character c = first_character(text.substr(at));
    if (!(table.of(c.code) & CharacterTable::kComposed)) return false;
    at += c.bytes;
  }
  return true;
}

}  // namespace weft
