// Code blocks that several ranks share: they find the largest number of each together.
#pragma once
#include <span>
#include <vector>

#include "weft/device/arena.h"
#include "weft/ops/backend.h"
#include "weft/sharding/flat_layout.h"
#include "weft/sharding/replica_group.h"

namespace weft {

class ParamStore;

// Some ranks cut one part of a weight. These are the code blocks of it that more than one of them keeps elements of, as
// runs, in order: the same list on all of these ranks. Ranks that hold the same elements count as one.
struct SharedBlocks {
  std::vector<Run> over_shards, over_tp;
};

// What each rank of tp holds of a weight.
std::vector<std::vector<HeldPart>> parts_over_tp(const ParamSpec& weight, const ReplicaGroup& group);
struct WhereCut {
  const ReplicaGroup& group;
  const FlatLayout& layout;
  int64_t offset;  // of the weight, in the layout
};
SharedBlocks shared_blocks(const ParamSpec& weight, std::span<const std::vector<HeldPart>> over_tp, size_t part,
                           const WhereCut& where);

// Numbers of the code blocks that this rank touches of a part: [blocks] each.
struct BlockMaxima {
  const Param* param;
  size_t part;
  int64_t first_block;
  std::vector<Tensor> maxima;  // f32 or f64, as many of every part
};
// Replaces the maxima of shared blocks by the largest that any rank has. Joins the parts of a unit whose state is
// `num_states` tensors of codes; `here` lists those that this rank keeps anything of. Takes from `scratch`,
// till it returns, a number for each shared block, state and rank of an axis. All ranks of the store's mesh call it.
// Blocks.
void wait_join_maxima(Backend& backend, const ParamStore& store, int unit, int64_t num_states, Arena& scratch,
                      std::span<const BlockMaxima> here);

}  // namespace weft
