// ASCII letters, whatever the locale; all other bytes stay as they are.
#pragma once
#include <string>
#include <string_view>

namespace weft {

constexpr bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }
constexpr char lower_ascii(char c) { return c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c; }
inline std::string lower_ascii(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = lower_ascii(c);
  return lower;
}

}  // namespace weft
