// The norms of gradients, by matrix and of all, and which of them are not numbers; whatever part of them this rank
// keeps.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "weft/sharding/param_store.h"

namespace weft {

// The L2 norm of all gradients is summed over a fixed tree of the elements that tensor-parallel ranks hold alike, then
// in the order of the model: the same bits for any number of threads and however gradients are sharded over dp. Ranks
// that hold shards pass on what they cannot add yet, in log2 steps; a rank's memory does not grow with their number.
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
  // Measures every weight of this stage, after finish_step; the same on every rank of it. Blocks.
  std::vector<Entry> wait_measure_parts(Backend& backend) const;
  // "gradient of blocks.3.attn.qkv.weight: 12 of 4096 values are not finite", for the first weight of the model's order
  // that has such; empty when there is none. The same on every rank of a stage. Blocks.
  std::string wait_first_nonfinite(Backend& backend) const;
  // "blocks.3.mlp.up.weight: 2 of 4096 values" of the first weight with such of which this rank keeps a part; frozen
  // ones are not looked at. Blocks.
  std::string wait_first_nonfinite_weight(Backend& backend) const;

 private:
  // The ranges of a replica group lie one behind the other, and so do their sums.
  struct Group {
    const ReplicaGroup* ranks;
    size_t first_range = 0, num_ranges = 0;
    int64_t first_node = 0, num_nodes = 0;
  };
  // The nodes of a range's tree that consecutive shards sum to.
  std::vector<TreeNode> nodes_of(const ParamStore::GradRange& range, int64_t shard, int64_t num_shards) const;
  using GradRanges = std::span<const ParamStore::GradRange>;
  void wait_sum(Backend& backend, const Group& group, GradRanges ranges);
  void sum_own(Backend& backend, const Group& group, GradRanges ranges);
  void join_shards(const Group& group, GradRanges ranges);
  void join(const Group& group, GradRanges ranges, const std::vector<std::vector<TreeNode>>& mine,
            const std::vector<std::vector<TreeNode>>& theirs);
  template <class Op>
  std::vector<Entry> measure_parts(Backend& backend) const;

  const ParamStore& store_;
  std::vector<Group> groups_;
  Tensor squares_;  // f64 [nodes at most]: of this shard, then of more and more
  Tensor theirs_;   // f64 [nodes at most]: of other shards
  Tensor sums_;     // f64 [ranges]
  Tensor units_;    // f64 [units of the model]
  Tensor one_;      // f64 [1]: of the part of a weight that is looked at
};

}  // namespace weft
