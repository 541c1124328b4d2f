// Attention heads dealt out over the ranks of cp instead of rows, and back.
#pragma once
#include "weft/sharding/sequence_cut.h"

namespace weft {

// A permutation, whose inverse is its adjoint (Ulysses; Jacobs et al. 2023).
class HeadExchange {
 public:
  using At = WholeSequences::At;
  // parts[i] [T, d_i], Shard0 on cp. Each rank receives its n-th of each part's columns, side by side: [n T, sum of
  // d_i / n], Shard1 on cp, in the order of the sequences. Blocks.
  Tensor to_heads(const At& at, std::span<const Tensor> parts) const;
  // The inverse: x [n T, sum of d_i / n], Shard1 on cp, into the parts. Blocks.
  void to_rows(const At& at, Tensor x, std::span<const Tensor> parts) const;
};

}  // namespace weft
