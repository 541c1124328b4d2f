#include "weft/base/utf8.h"

#include <cstdint>
#include <cstring>

namespace weft {
namespace {

// What may follow a lead byte: how many bytes, and the range of the first of them (the rest are 80..BF).
struct Tail {
  int bytes;  // -1: no lead byte
  uint8_t low, high;
};

Tail tail_of(uint8_t lead) {
  if (lead < 0x80) return {0, 0, 0};
  if (lead < 0xc2) return {-1, 0, 0};
  if (lead < 0xe0) return {1, 0x80, 0xbf};
  if (lead == 0xe0) return {2, 0xa0, 0xbf};
  if (lead == 0xed) return {2, 0x80, 0x9f};  // surrogates
  if (lead < 0xf0) return {2, 0x80, 0xbf};
  if (lead == 0xf0) return {3, 0x90, 0xbf};
  if (lead < 0xf4) return {3, 0x80, 0xbf};
  if (lead == 0xf4) return {3, 0x80, 0x8f};
  return {-1, 0, 0};
}

// How many bytes at the beginning are ASCII, in whole words of eight.
size_t ascii_bytes(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080u;
  size_t at = 0;
  for (uint64_t word; at + sizeof word <= text.size(); at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    if (word & kHighBits) break;
  }
  return at;
}

}  // namespace

size_t utf8_error(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (const size_t ascii = ascii_bytes(text.substr(i)); ascii > 0) {
      i += ascii;
      continue;
    }
    const Tail tail = tail_of(uint8_t(text[i]));
    if (tail.bytes < 0 || size_t(tail.bytes) >= text.size() - i) return i;
    for (int k = 1; k <= tail.bytes; ++k) {
      const uint8_t byte = uint8_t(text[i + size_t(k)]);
      if (byte < (k == 1 ? tail.low : 0x80) || byte > (k == 1 ? tail.high : 0xbf)) return i;
    }
    i += size_t(tail.bytes) + 1;
  }
  return std::string_view::npos;
}

}  // namespace weft
