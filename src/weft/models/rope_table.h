// The angles of rotary positions.
#pragma once
#include <vector>

#include "weft/device/memory.h"
#include "weft/models/model_spec.h"
#include "weft/tensor/tensor.h"

namespace weft {

// Radians that pair i turns by from one position to the next, of `width` numbers that turn, in sequences of up to
// `positions`; width / 2 of them.
std::vector<double> rope_frequencies(const RopeSpec& spec, int64_t width, int64_t positions);

// table [positions, width], f32 or f64, in `memory`: magnitude times the cosines, then the sines, of position *
// frequency.
void fill_rope_table(const RopeSpec& spec, const Tensor& table, const Memory& memory);

}  // namespace weft
