// Sums over the elements of each part of each weight (q, k and v of a fused qkv apart), over all ranks that keep some.
#pragma once
#include <functional>
#include <vector>

#include "weft/sharding/param_store.h"

namespace weft {

struct PartSums {
  const Param* param;
  int64_t first_row, rows;  // of the whole weight
  std::vector<double> sums;
};

// `add` adds to `sums`, of which there are `count`, those over a block that this rank keeps. What several ranks hold
// alike is counted once. The result is the same on every rank of a stage. Collective, blocks.
std::vector<PartSums> wait_sum_parts(const ParamStore& store, size_t count,
                                     const std::function<void(const ParamStore::Stored& block, double* sums)>& add);

}  // namespace weft
