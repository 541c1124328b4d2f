// Collectives on a transport: which bytes go where, so that sums are made in rank order whatever moves them.
#pragma once
#include "weft/device/fabric.h"
#include "weft/tensor/tensor.h"

namespace weft {

struct RankPlace {
  int size, rank;
};

// These only queue work on the transport, the same on every rank; tensors are as for Communicator, with at least one
// element. Sums go in chunks that fit into staging: every rank sends every other one its share of the chunk, and adds
// in rank order.
//
// Each rank sends (size - 1) / size of `full`.
void reduce_scatter_on(Transport& transport, const RankPlace& me, const Tensor& full, const Tensor& shard);
// Each rank sends `shard` to all others, by the transport's own all-gather.
void all_gather_on(Transport& transport, const Tensor& shard, const Tensor& full);
// For each chunk, a reduce-scatter in place and an all-gather; a small tensor goes to every rank whole.
void all_reduce_on(Transport& transport, const RankPlace& me, const Tensor& x);

}  // namespace weft
