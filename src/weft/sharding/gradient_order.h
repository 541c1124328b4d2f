// In which order the gradients of a step's micro-batches become one sum, and which rank has which micro-batch.
#pragma once
#include <cstdint>
#include <vector>

#include "weft/sharding/tree_sum.h"

namespace weft {

struct GradientOrder {
  int64_t num_micro_batches = 1;  // of this rank
  bool tree = false;  // over a fixed binary tree of micro-batches (invariant numerics), else in the order they come
  int64_t ranks = 1, rank = 0;  // of dp; in a replica group, its own
  // ZeRO (Rajbhandari et al. 2020): over `shards` ranks, stage 1 shards optimizer state and master weights, 2 gradients
  // too (reduced after each micro-batch), 3 the weights too. Stage 0: one shard, held by every rank.
  int zero_stage = 0;
  int64_t shards = 1;
  // Over data-parallel ranks (with ZeRO: those of the shards) sums are sent in bf16, added in f32 and rounded once. Not
  // with a tree.
  bool reduces_in_bf16 = false;
  // [rank of dp] micro-batches of each, where they have unequally many: num_micro_batches is one of them. Not where
  // ranks reduce each micro-batch. A replica group over cp too keeps the list, and nobody asks it for another's.
  std::vector<int64_t> unequal = {};
  bool shares_vary = false;  // may that list change while the run goes on: sums have room for any

  bool reduces_each() const { return zero_stage >= 2; }
  int64_t global_micro_batches() const;
  // The same order as a rank of dp has it.
  GradientOrder of_rank(int64_t dp_rank) const;
  // The rank of dp with the most micro-batches: the first of several.
  int64_t busiest() const;
  // Ranks that first sum their own have consecutive micro-batches, whole sub-trees where they can; ranks that reduce
  // each have every ranks-th, so that together they complete one sub-tree after the other.
  int64_t global_of(int64_t micro_batch) const {
    return reduces_each() ? micro_batch * ranks + rank : run_of(rank).first + micro_batch;
  }
  LeafRun run_of(int64_t r) const;
  struct Holder {
    int64_t rank, micro_batch;
  };
  // Which rank of dp has a micro-batch of the global batch, and as which of its own: the inverse of global_of.
  Holder holder_of(int64_t global) const;
  // Each use of a tied weight keeps a gradient of its own, summed last: the tree of each must not depend on the layout.
  bool separate_ties() const { return tree; }
  int64_t num_leaves() const { return tree ? global_micro_batches() : 1; }
  int64_t leaf_of(int64_t micro_batch) const { return tree ? global_of(micro_batch) : 0; }
  bool ends_leaf(int64_t micro_batch) const { return tree || micro_batch == num_micro_batches - 1; }
  // How many sums the leaves of a rank add up to at most, whatever its share is.
  int64_t most_nodes() const;
  // How many sums a rank holds at most; the same number on all ranks, so that they need the same memory.
  int num_buffers() const;
};

}  // namespace weft
