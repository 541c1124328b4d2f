// Dropout, as ops.h defines it.
#pragma once
#include "weft/base/rng.h"
#include "weft/ops/ops.h"

namespace weft::ref {

// What an element is multiplied by: 0 where it is dropped, else 1 / (1 - p).
inline double kept(double p, uint64_t key, uint64_t index) {
  if (p == 0) return 1;
  return double(random_bits(key, index)) < p * 0x1p32 ? 0 : 1 / (1 - p);
}

}  // namespace weft::ref
