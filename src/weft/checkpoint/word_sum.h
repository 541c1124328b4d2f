// A hash of a tensor's bytes that adds up from parts, in whatever pieces and order, on however many ranks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace weft {

// The sum over the little-endian 32-bit words w of `bytes`, modulo 2^64, of mix(p * 0x9e3779b97f4a7c15 + w), where p is
// the word's number in the tensor, from 0, and mix the finalizer of splitmix64 (Steele, Lea, Flood 2014). The last word
// is filled up with zeros. `bytes` begin at byte 4 * first_word of the tensor; parts that end within a word do not add
// up. A word that changes changes the sum; words that change places do, but for one chance in 2^64.
uint64_t word_sum(std::span<const std::byte> bytes, int64_t first_word);
// The same where every byte is a word: of tensors whose pieces may begin and end at any byte.
uint64_t byte_sum(std::span<const std::byte> bytes, int64_t first_byte);

}  // namespace weft
