// A keyed hash, by which two programs that share a secret know each other, and each other's messages.
#pragma once
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace weft {

// HMAC-SHA-256 (RFC 2104, FIPS 198-1) of `text` under `key`.
using KeyedHash = std::array<std::byte, 32>;
KeyedHash keyed_hash(std::span<const std::byte> key, std::span<const std::byte> text);
// Whether two hashes, or their first bytes, are equal: in a time that does not tell where they differ. Equal lengths.
bool is_same_hash(std::span<const std::byte> a, std::span<const std::byte> b);
// SHA-256 of `text` (FIPS 180-4), 64 hexadecimal digits, as sha256sum prints them.
std::string sha256_hex(std::string_view text);
// Bytes that nobody can foretell. Throws Error where the system has none.
void fill_random(std::span<std::byte> to);

inline std::span<const std::byte> bytes_of_text(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace weft
