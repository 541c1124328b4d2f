#include "weft/base/hashing.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "weft/base/mapped_file.h"

namespace weft {

Hash128 hash128(std::string_view bytes) {
  const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
  return {h.high64, h.low64};
}

uint64_t hash64(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string to_hex(Hash128 hash) { return fmt::format("{:016x}{:016x}", hash.high, hash.low); }

struct Hasher::State {  // the library's type has another name where its header stands for all of it
  State() { XXH3_128bits_reset(xxh3); }
  ~State() { XXH3_freeState(xxh3); }
  XXH3_state_t* const xxh3 = XXH3_createState();
};

Hasher::Hasher() : state_(new State, [](State* state) { delete state; }) {}

void Hasher::add(std::string_view bytes) { XXH3_128bits_update(state_->xxh3, bytes.data(), bytes.size()); }

std::string Hasher::hex() const {
  const XXH128_hash_t h = XXH3_128bits_digest(state_->xxh3);
  return to_hex({h.high64, h.low64});
}

std::string hash_of_file(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  const std::string hash = to_hex(hash128(mapped.text()));
  mapped.check_whole();
  return hash;
}

}  // namespace weft
