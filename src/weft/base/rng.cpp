#include "weft/base/rng.h"

#include <cmath>
#include <numbers>

namespace weft {
namespace {

// The finalizer of splitmix64: every input bit reaches every output bit.
uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t rng_key(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001b3u;
  return rng_key(seed, hash);
}

uint64_t rng_key(uint64_t key, uint64_t number) {
  return mix(mix(key + 0x9e3779b97f4a7c15u) ^ (number + 0x9e3779b97f4a7c15u));
}

std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter) {
  std::array<uint32_t, 4> c{uint32_t(counter), uint32_t(counter >> 32), 0, 0};
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t(0xD2511F53u) * c[0], b = uint64_t(0xCD9E8D57u) * c[2];
    c = {uint32_t(b >> 32) ^ c[1] ^ k0, uint32_t(b), uint32_t(a >> 32) ^ c[3] ^ k1, uint32_t(a)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

uint32_t random_bits(uint64_t key, uint64_t index) { return philox(key, index / 4)[index % 4]; }

uint64_t random_bits64(uint64_t key, uint64_t index) {
  const auto words = philox(key, index / 2);
  const size_t first = 2 * (index % 2);
  return uint64_t(words[first]) << 32 | words[first + 1];
}

double random_uniform(uint64_t key, uint64_t index) { return double(random_bits64(key, index) >> 11) * 0x1p-53; }

double random_normal(uint64_t key, uint64_t index) {
  const auto words = philox(key, index);
  const double u = (double(uint64_t(words[0]) << 21 | words[1] >> 11) + 0.5) * 0x1p-53;
  const double v = double(uint64_t(words[2]) << 21 | words[3] >> 11) * 0x1p-53;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

}  // namespace weft
