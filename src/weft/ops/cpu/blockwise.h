// Optimizer state in 8 bits, vectorised; a range of code blocks, or of elements, at a time.
#pragma once
#include <bit>

#include "weft/ops/cpu/rows.h"

namespace weft::cpu {

void adamw8_max(const AdamW8Max& op, Range blocks);
void adamw8(const AdamW8& op, Range blocks);
void max_rows(const MaxRows& op, Range elements);

// How kernels find the level nearest to x, |x| <= 1, without a search. The sign and the upper bits of a float name a
// bucket of numbers in which at most one midpoint between two levels lies: the code is the bucket's first, or one more
// where x is above that code's midpoint.
struct CodeFinder {
  static constexpr int kShift = 16;                                         // bits of a float that buckets leave out
  static constexpr int32_t kFirst = (127 - 23) << (23 - kShift);            // bits of 2^-23: below it all is one bucket
  static constexpr int32_t kBuckets = (127 << (23 - kShift)) - kFirst + 2;  // and 1 has the last one
  std::array<int32_t, size_t(2 * kBuckets)> first_code{};                   // of numbers >= 0, then of the others
  std::array<float, kCodes> midpoint{};                                     // above each level
  uint8_t code_of(float x) const {
    const auto bits = std::bit_cast<uint32_t>(x);
    const auto upper = int32_t((bits & 0x7fffffffu) >> kShift);
    const int32_t bucket = std::clamp(upper, kFirst - 1, kFirst + kBuckets - 2) - (kFirst - 1);
    const int32_t first = first_code[size_t(bits >> 31 == 0 ? bucket : kBuckets + bucket)];
    return uint8_t(first + (x > midpoint[size_t(first)] ? 1 : 0));
  }
};
const CodeFinder& code_finder(Levels which);

}  // namespace weft::cpu
