// Whole numbers in groups of seven bits, the lowest first, as Parquet, Thrift and protocol buffers have them.
#pragma once
#include <cstdint>
#include <optional>

namespace weft {

// `next` gives a byte, or throws. None if the number does not end within 64 bits.
template <class Next>
std::optional<uint64_t> read_varint(const Next& next) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = uint8_t(next());
    value |= uint64_t(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return {};
}

}  // namespace weft
