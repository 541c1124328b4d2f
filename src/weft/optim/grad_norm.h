// The norms of gradients, by matrix and of all, and which of them are not numbers.
#pragma once
#include <string>
#include <vector>

#include "weft/dist/param_store.h"

namespace weft {

// The L2 norm of each part of each weight (q, k, v of a fused qkv apart), and of all. Each is summed over fixed chunks
// and they are added in the order of the model: the same bits for any number of threads.
class GradNorm {
 public:
  // Takes one f64 for each part from `arena`.
  GradNorm(const ParamStore& store, Arena& arena);
  // The norm of all gradients, after finish_step. Blocks.
  double wait_measure(Backend& backend);
  // Sums of squares of the last measure, in the order of `entries`.
  struct Entry {
    const Param* param;
    int part;
    int64_t first_row, rows;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  double squares(size_t entry) const { return squares_.as<double>()[entry]; }
  // "blocks.3.attn.qkv.weight: 12 of 4096 values are not finite", for the first weight of the model's order that has
  // such; empty when there is none.
  std::string first_nonfinite(Backend& backend, Arena& scratch) const;

 private:
  std::vector<Entry> entries_;
  Tensor squares_;  // f64 [entries]
};

}  // namespace weft
