// Which rank writes what into a checkpoint, where several hold the same.
#pragma once
#include "weft/sharding/param_store.h"

namespace weft {

// The rows that this rank writes of a block that it keeps (ParamStore::stored): the ranks that keep the same
// block share its rows, so that each number is written once, and hashed once.
Run rows_to_save(const ParamStore& params, const Param& p, const ParamStore::Stored& block);

}  // namespace weft
