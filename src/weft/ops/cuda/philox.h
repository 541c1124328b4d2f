// Philox4x32-10 as base/rng.h has it (Salmon et al. 2011), where kernels can call it.
#pragma once
#include "weft/ops/cuda/block.h"

namespace weft::gpu {

// Word index % 4 of block index / 4 of sequence `key`.
WEFT_GPU inline uint32_t random_bits(uint64_t key, uint64_t index) {
  constexpr uint32_t kRound0 = 0xD2511F53u, kRound1 = 0xCD9E8D57u, kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  const uint64_t counter = index / 4;
  uint32_t c0 = uint32_t(counter), c1 = uint32_t(counter >> 32), c2 = 0, c3 = 0;
  uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(kRound0) * c0, p1 = uint64_t(kRound1) * c2;
    c0 = uint32_t(p1 >> 32) ^ c1 ^ k0;
    c2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
    c1 = uint32_t(p1);
    c3 = uint32_t(p0);
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  const uint32_t even = index % 4 == 0 ? c0 : c2, odd = index % 4 == 1 ? c1 : c3;  // an array would be in memory
  return index % 2 == 0 ? even : odd;
}

// rng_key(key, number) of base/rng.h.
WEFT_GPU inline uint64_t rng_key_of(uint64_t key, uint64_t number) {
  const auto mix = [](uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  };
  return mix(mix(key + 0x9e3779b97f4a7c15u) ^ (number + 0x9e3779b97f4a7c15u));
}

}  // namespace weft::gpu
