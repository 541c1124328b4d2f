// Counter-based random numbers: a pure function of (key, counter), the same on any layout and any number of threads.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace weft {

// A 64-bit key from a seed and a name (FNV-1a over the name, mixed with the seed): names a sequence of random numbers.
uint64_t rng_key(uint64_t seed, std::string_view name);
// The same, keyed further by a number (a step, a layer).
uint64_t rng_key(uint64_t key, uint64_t number);

// Philox4x32-10: four independent 32-bit words of block `counter` of sequence `key`.   Salmon et al. 2011, "Parallel
// random numbers: as easy as 1, 2, 3".
std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter);

// 32 random bits of element `index` of sequence `key`: word index % 4 of block index / 4.
uint32_t random_bits(uint64_t key, uint64_t index);
// 64 random bits: words 2 (index % 2) and the next of block index / 2.
uint64_t random_bits64(uint64_t key, uint64_t index);
// Uniform in [0, 1), 53 bits.
double random_uniform(uint64_t key, uint64_t index);
// Standard normal, by Box-Muller in double: element `index` of sequence `key`.
double random_normal(uint64_t key, uint64_t index);

}  // namespace weft
