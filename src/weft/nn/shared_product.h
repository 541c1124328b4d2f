// Products of rows that several ranks have.
#pragma once
#include "weft/nn/pass.h"

namespace weft {

// y = x W^T + b: a Matmul with trans_b that overwrites. Where every rank of cp has these rows and the product is large
// (Pass::shares_from), each multiplies with its part of W's rows, and all get each other's columns of y: reading W is
// what takes the time where rows are few. One rank makes each sum, in f32 as it would alone (a
// library may add in another order for fewer columns). Blocks while ranks exchange.
void multiply_shared(Pass& p, const Matmul& product);

}  // namespace weft
