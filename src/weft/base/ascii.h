// ASCII text, whatever the locale; all other bytes stay as they are.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

constexpr bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }
constexpr char lower_ascii(char c) { return c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c; }
constexpr bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_ascii_letter(char c) { return lower_ascii(c) >= 'a' && lower_ascii(c) <= 'z'; }
inline std::string lower_ascii(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = lower_ascii(c);
  return lower;
}
// The value of a hexadecimal digit; -1: it is none.
constexpr int hex_digit(char c) {
  if (is_ascii_digit(c)) return c - '0';
  const char l = lower_ascii(c);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}
// What stands between the blanks: "a b" is "a", "b". Blanks beside each other have an empty word between them.
inline std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}
// Whether `words`, which are apart by blanks, has this one; no word is empty or has a blank.
inline bool has_word(std::string_view words, std::string_view word) {
  if (word.empty() || word.find(' ') != word.npos) return false;
  for (size_t at = 0; (at = words.find(word, at)) != words.npos; at += word.size()) {
    const size_t end = at + word.size();
    if ((at == 0 || words[at - 1] == ' ') && (end == words.size() || words[end] == ' ')) return true;
  }
  return false;
}

}  // namespace weft
