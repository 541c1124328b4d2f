// Memory for benchmarks.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "weft/base/rng.h"

namespace weft {

// Positive, in every type: of 16 bits each, which are the upper half of an f32 and the upper quarter of an f64. A CPU
// may be slower with others.
inline void fill_with_ordinary_numbers(std::byte* to, size_t bytes) {
  std::array<uint16_t, 1 << 15> pattern;
  for (size_t i = 0; i < pattern.size(); ++i) pattern[i] = uint16_t(0x3c00 + (random_bits(3, i) & 0x3ff));
  for (size_t at = 0; at < bytes; at += sizeof pattern)
    std::memcpy(to + at, pattern.data(), std::min(sizeof pattern, bytes - at));
}

}  // namespace weft
