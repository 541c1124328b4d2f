// Code blocks of which several ranks keep pieces: their largest numbers are found together.
#pragma once
#include <span>
#include <vector>

#include "weft/device/arena.h"
#include "weft/ops/backend.h"
#include "weft/sharding/flat_layout.h"
#include "weft/sharding/replica_group.h"

namespace weft {

class ParamStore;

// The code blocks of a part of a weight that more than one of the ranks touch which cut it, in runs, in order: the same
// on all of them. Ranks that hold the same elements count as one.
struct SharedBlocks {
  std::vector<Run> over_shards, over_tp;
};

// What of a weight the ranks of tp hold: of each rank.
std::vector<std::vector<Piece>> pieces_over_tp(const ParamSpec& weight, const ReplicaGroup& group);
struct WhereCut {
  const ReplicaGroup& group;
  const FlatLayout& layout;
  int64_t offset;  // of the weight, in the layout
};
SharedBlocks shared_blocks(const ParamSpec& weight, std::span<const std::vector<Piece>> over_tp, size_t piece,
                           const WhereCut& where);

// Numbers of the code blocks that this rank touches of a part: [blocks] each.
struct BlockMaxima {
  const Param* param;
  size_t piece;
  int64_t first_block;
  std::vector<Tensor> maxima;  // f32 or f64, as many of every part
};
// Replaces the maxima of blocks that several ranks share by the largest that any of them has, of the parts of a unit
// whose state is `num_states` tensors of codes. `here`: all of which this rank keeps anything. Takes from `scratch`,
// till it returns, a number for each shared block, state and rank of an axis. All ranks of the store's mesh call it.
// Blocks.
void wait_join_maxima(Backend& backend, const ParamStore& store, int unit, int64_t num_states, Arena& scratch,
                      std::span<const BlockMaxima> here);

}  // namespace weft
