// Products of rows with their experts' weights, wherever these lie.
#pragma once
#include "weft/nn/pass.h"
#include "weft/sharding/dispatch.h"

namespace weft {

// y[r] = W x[r] with the W of the expert that row r is of. `mine`: the value of `w` that layers read, a matrix or a
// vector (one column). Where routes say whose experts the rows are of, those of each rank are multiplied with its
// weights; on a dry mesh, which has those of one rank alone, with these.
void multiply_by_owner(Pass& p, const Dispatch::Routes& routes, const Param& w, const Tensor& mine, const Tensor& x,
                       const Tensor& y);

}  // namespace weft
