// The norms of gradients, by matrix and of all, and which of them are not numbers; whatever part of them this rank
// keeps.
#pragma once
#include <string>
#include <vector>

#include "weft/dist/param_store.h"

namespace weft {

// The L2 norm of all gradients is summed over a fixed tree of the elements that tensor-parallel ranks hold alike, then
// in the order of the model: the same bits for any number of threads and however gradients are sharded over dp.
class GradNorm {
 public:
  // Takes its sums from `arena`. `num_positions`: of the units of the whole model, over all stages.
  GradNorm(const ParamStore& store, Arena& arena, int64_t num_positions);
  // The norm of all gradients, after finish_step; the same on every rank. Blocks.
  double wait_measure(Backend& backend);

  // A part of a weight (q, k, v of a fused qkv apart): rows [first_row, first_row + rows) of the whole.
  struct Entry {
    const Param* param;
    int64_t first_row, rows;
    double squares = 0;  // sum of the gradient's
  };
  // Of every weight of this stage, after finish_step; the same on every rank of it. Blocks.
  std::vector<Entry> wait_measure_parts(Backend& backend, Arena& scratch) const;
  // "gradient of blocks.3.attn.qkv.weight: 12 of 4096 values are not finite", for the first weight of the model's order
  // that has such; empty when there is none. The same on every rank of a stage. Blocks.
  std::string wait_first_nonfinite(Backend& backend, Arena& scratch) const;

 private:
  struct Node {  // of the tree of a range: what one rank sums
    size_t range;
    TreeNode at;
    int64_t shard;  // of the rank that keeps it
    Run run;        // of the range's elements
  };
  template <class Op>
  std::vector<Entry> measure_parts(Backend& backend, Arena& scratch) const;

  const ParamStore& store_;
  std::vector<Node> nodes_;
  std::vector<int64_t> sizes_;  // of the ranges
  std::vector<Spmd> held_;
  std::vector<int64_t> positions_;
  Tensor squares_;  // f64 [nodes]
  Tensor sums_;     // f64 [ranges]
  Tensor units_;    // f64 [units of the model]
};

}  // namespace weft
