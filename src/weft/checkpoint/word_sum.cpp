#include "weft/checkpoint/word_sum.h"

#include <cstring>

namespace weft {
namespace {

constexpr uint64_t kStep = 0x9e3779b97f4a7c15;

// Written once, compiled for each set of instructions: a save is as fast as its disk, not as this.
[[gnu::always_inline]] inline uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

[[gnu::always_inline]] inline uint64_t sum_words(const std::byte* data, size_t words, uint64_t key) {
  uint64_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (size_t i = 0; i < words; ++i) {
    uint32_t word;
    std::memcpy(&word, data + 4 * i, 4);
    sum += mix(key + i * kStep + word);
  }
  return sum;
}

#ifdef __x86_64__
[[gnu::target("avx512f,avx512dq,avx512vl")]] uint64_t sum_words_avx512(const std::byte* data, size_t words,
                                                                       uint64_t key) {
  return sum_words(data, words, key);
}
[[gnu::target("avx2")]] uint64_t sum_words_avx2(const std::byte* data, size_t words, uint64_t key) {
  return sum_words(data, words, key);
}
#endif

uint64_t sum_words_here(const std::byte* data, size_t words, uint64_t key) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return sum_words_avx512(data, words, key);
  if (__builtin_cpu_supports("avx2")) return sum_words_avx2(data, words, key);
#endif
  return sum_words(data, words, key);
}

}  // namespace

uint64_t word_sum(std::span<const std::byte> bytes, int64_t first_word) {
  const size_t words = bytes.size() / 4, rest = bytes.size() % 4;
  const uint64_t key = uint64_t(first_word) * kStep;
  if (rest == 0) return sum_words_here(bytes.data(), words, key);
  uint32_t last = 0;
  std::memcpy(&last, bytes.data() + 4 * words, rest);
  return sum_words_here(bytes.data(), words, key) + mix(key + words * kStep + last);
}

uint64_t byte_sum(std::span<const std::byte> bytes, int64_t first_byte) {
  uint64_t sum = 0, key = uint64_t(first_byte) * kStep;
  for (const std::byte byte : bytes) {
    sum += mix(key + uint64_t(byte));
    key += kStep;
  }
  return sum;
}

}  // namespace weft
