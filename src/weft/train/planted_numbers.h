// Wrong numbers that tests ask for (base/fault_point.h).
#pragma once
#include "weft/sharding/param_store.h"

namespace weft {

// Spoils a number of the first weight of which this rank keeps something, where such a fault is planted for this point,
// on this rank: the kinds nan, and flip, which turns a bit of the mantissa.
//   POINT  gradient, gradient_again: after backward; again: where the step runs for the second time
//          weights, moment: before the step; values: after its update, what layers read
//          work, replayed: a gradient of one micro-batch, where a step is replayed, of its own rank or of the other
void plant_number(const ParamStore& params, std::string_view point, int64_t step);
// The same in this tensor.
void plant_number(const ParamStore& params, const Tensor& t, std::string_view point, int64_t step);

}  // namespace weft
