// Attention heads dealt out over neighbours of cp instead of rows, and back.
//   n ranks of a group   T rows of each: of sequences, or of what the group has of them
#pragma once
#include "weft/sharding/sequence_cut.h"

namespace weft {

// A permutation among groups of n neighbours, whose inverse is its adjoint (Ulysses; Jacobs et al. 2023).
class HeadExchange {
 public:
  explicit HeadExchange(int64_t ranks) : ranks_(ranks) {}
  using At = WholeSequences::At;
  // parts[i] [T, d_i], Shard0 on cp. Each rank receives its n-th of each part's columns, side by side: [n T, sum of
  // d_i / n], Shard1 on cp, in the order in which one rank in the group's place would have them. Blocks.
  Tensor to_heads(const At& at, std::span<const Tensor> parts) const;
  // The inverse: x [n T, sum of d_i / n], Shard1 on cp, into the parts. Blocks.
  void to_rows(const At& at, Tensor x, std::span<const Tensor> parts) const;

 private:
  int64_t ranks_;
};

}  // namespace weft
