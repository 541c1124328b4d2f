#include "weft/data/permutation.h"

#include <algorithm>
#include <bit>

#include "weft/base/error.h"
#include "weft/base/rng.h"

namespace weft {
namespace {

constexpr int kRounds = 6;

}  // namespace

Permutation::Permutation(uint64_t key, int64_t n)
    : key_(key), n_(n), half_bits_(std::max(1, (int(std::bit_width(uint64_t(n - 1))) + 1) / 2)) {
  WEFT_CHECK(n > 0, "a permutation of {}", n);
}

int64_t Permutation::operator()(int64_t i) const {
  WEFT_CHECK(i >= 0 && i < n_, "{} of {}", i, n_);
  const uint64_t mask = (uint64_t(1) << half_bits_) - 1;
  uint64_t x = uint64_t(i);
  do {
    uint64_t left = x >> half_bits_, right = x & mask;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (rng_key(rng_key(key_, uint64_t(round)), right) & mask);
      left = right;
      right = mixed;
    }
    x = left << half_bits_ | right;
  } while (x >= uint64_t(n_));
  return int64_t(x);
}

}  // namespace weft
