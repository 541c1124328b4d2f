#include "weft/islands/keyed_hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "weft/base/error.h"

namespace weft {

KeyedHash keyed_hash(std::span<const std::byte> key, std::span<const std::byte> text) {
  KeyedHash hash;
  unsigned int length = 0;
  const auto* of = reinterpret_cast<const unsigned char*>(text.data());
  const auto* made = HMAC(EVP_sha256(), key.data(), int(key.size()), of, text.size(),
                          reinterpret_cast<unsigned char*>(hash.data()), &length);
  WEFT_CHECK(made != nullptr && length == hash.size(), "a keyed hash of {} bytes", length);
  return hash;
}

bool is_same_hash(std::span<const std::byte> a, std::span<const std::byte> b) {
  WEFT_CHECK(a.size() == b.size(), "hashes of {} and {} bytes", a.size(), b.size());
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string sha256_hex(std::string_view text) {
  std::array<unsigned char, 32> hash = {};
  unsigned int length = 0;
  const int made = EVP_Digest(text.data(), text.size(), hash.data(), &length, EVP_sha256(), nullptr);
  WEFT_CHECK(made == 1 && length == hash.size(), "a hash of {} bytes", length);
  std::string hex;
  for (const unsigned char byte : hash) hex += fmt::format("{:02x}", byte);
  return hex;
}

void fill_random(std::span<std::byte> to) {
  if (RAND_bytes(reinterpret_cast<unsigned char*>(to.data()), int(to.size())) != 1)
    throw Error("the system has no random numbers for islands to know each other by");
}

}  // namespace weft
