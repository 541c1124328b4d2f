// Collectives on a transport: which bytes go where, so that sums are made in rank order whatever moves them.
#pragma once
#include "weft/device/fabric.h"
#include "weft/tensor/tensor.h"

namespace weft {

struct RankPlace {
  int size, rank;
};

// All of them only give the transport what to do, the same on every rank; tensors are as Communicator has them, at
// least one element. Sums go in chunks that its staging has room for: every rank sends every other what is that one's
// share of the chunk, and adds what came in rank order.
//
// Each rank sends (size - 1) / size of `full`.
void reduce_scatter_on(Transport& transport, const RankPlace& me, const Tensor& full, const Tensor& shard);
// Each rank sends `shard` to all others, in whatever way the transport has.
void all_gather_on(Transport& transport, const Tensor& shard, const Tensor& full);
// By chunks a reduce-scatter in place and an all-gather; what is small goes to every rank whole.
void all_reduce_on(Transport& transport, const RankPlace& me, const Tensor& x);

}  // namespace weft
