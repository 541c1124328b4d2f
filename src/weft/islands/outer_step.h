// The outer step: what becomes of a weight that islands have trained apart (Douillard et al. 2023, DiLoCo, algorithm
// 1).
//   w   the outer weight, with which each island began   w_i  what island i has made of it
//   g   w - mean of w_i, the outer gradient               m    its momentum
// With Nesterov's momentum, m' = mu m + g and w' = w - lr (g + mu m'). The hub and every island compute it by
// themselves, from the same numbers to the same bits.
#pragma once
#include <cmath>
#include <cstdint>

#include "weft/tensor/dtype.h"

namespace weft {

struct OuterSpec {
  double lr = 1, momentum = 0;
  // What islands send of a weight: itself, in f32; or how far it has moved, w - w_i, in bf16.
  enum class Wire : uint8_t { f32, bf16 };
  Wire wire = Wire::f32;
  int64_t bytes_per_weight() const { return wire == Wire::f32 ? 4 : 2; }
};

// How far outer weights are.
struct OuterAge {
  int64_t rounds = 0;
  int64_t step = 0;   // after which the furthest island was in the last round; 0: there was none
  int64_t since = 0;  // the first round after that step

  // Another round, in which the furthest island was after so many steps.
  void add_round(int64_t after) {
    ++rounds;
    if (after <= step) return;
    step = after;
    since = rounds;
  }
  bool operator==(const OuterAge&) const = default;
};

// `mean`: over the islands, of what they have sent. Written so that with lr = 1 and mu = 0 the weight becomes the mean
// itself, to the bit: w - (w - mean) would not, nor would a negative zero plus nothing. What a compiler might contract
// or not is written out, so that machines of other kinds find the same bits.
inline void outer_step(const OuterSpec& spec, float mean, float& w, float& m) {
  const bool is_weight = spec.wire == OuterSpec::Wire::f32;
  const double g = is_weight ? double(w) - double(mean) : double(mean);
  const double average = is_weight ? double(mean) : double(w) - g;
  m = float(std::fma(spec.momentum, double(m), g));
  const double further = std::fma(1 - spec.lr, g, -(spec.lr * spec.momentum) * double(m));
  w = further == 0 ? float(average) : float(average + further);
}

}  // namespace weft
