// Sizes in bytes as people write them: "60GiB", "1.5 TiB", "800MB", "4096".
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

// A decimal number, and a unit: B, KiB, MiB, GiB, TiB (powers of 1024) or KB, MB, GB, TB (of 1000), in any case, also
// apart by spaces; without one, bytes. Rounded down to whole bytes. None where it is no such size of 1 byte to 2^62.
std::optional<int64_t> byte_size_of(std::string_view text);

// The least size with two decimals of at least so many bytes, which byte_size_of reads: "59.41GiB", "1000B".
std::string byte_size_text(int64_t bytes);

}  // namespace weft
