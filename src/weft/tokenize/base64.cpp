#include "weft/tokenize/base64.h"

#include <cstdint>

#include "weft/base/error.h"
#include "weft/base/json.h"

namespace weft {
namespace {

int digit_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

std::string from_base64(std::string_view text, const std::string& source) {
  const std::string_view whole = text;
  while (text.ends_with('=') && whole.size() - text.size() < 2) text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    const int digit = digit_of(c);
    if (digit < 0 || whole.size() % 4 != 0)
      throw FileError(fmt::format("{}: {} is not base64", source, in_quotes(whole)));
    bits = bits << 6 | uint32_t(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += char(bits >> count & 0xff);
  }
  return bytes;
}

}  // namespace weft
