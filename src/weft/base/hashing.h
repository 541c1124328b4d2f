// Hashes that name contents: 128 bits of XXH3. They find every accident; they are no proof against a forger.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace weft {

struct Hash128 {
  uint64_t high = 0, low = 0;
  bool operator==(const Hash128&) const = default;
  auto operator<=>(const Hash128&) const = default;
};

Hash128 hash128(std::string_view bytes);
uint64_t hash64(std::string_view bytes);
// 32 hexadecimal digits, as xxhsum -H2 prints them.
std::string to_hex(Hash128 hash);

// Hashes bytes as they come.
class Hasher {
 public:
  Hasher();
  void add(std::string_view bytes);
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State, void (*)(State*)> state_;
};

// Reads the whole file. Throws FileError.
std::string hash_of_file(const std::filesystem::path& file);

}  // namespace weft
