#include "weft/checkpoint/word_sum.h"

#include <cstring>

namespace weft {
namespace {

constexpr uint64_t kStep = 0x9e3779b97f4a7c15;

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t word_at(const std::byte* at, size_t bytes = 4) {
  uint32_t word = 0;
  std::memcpy(&word, at, bytes);
  return word;
}

}  // namespace

uint64_t word_sum(std::span<const std::byte> bytes, int64_t first_word) {
  const std::byte* data = bytes.data();
  const size_t words = bytes.size() / 4, rest = bytes.size() % 4;
  uint64_t sum = 0, key = uint64_t(first_word) * kStep;
  for (size_t i = 0; i < words; ++i, key += kStep) sum += mix(key + word_at(data + 4 * i));
  if (rest > 0) sum += mix(key + word_at(data + 4 * words, rest));
  return sum;
}

}  // namespace weft
