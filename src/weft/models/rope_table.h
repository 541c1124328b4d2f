// The angles of rotary positions.
#pragma once
#include <vector>

#include "weft/device/memory.h"
#include "weft/models/model_spec.h"
#include "weft/tensor/tensor.h"

namespace weft {

// Radians that pair i of a head turns by from one position to the next; head_dim / 2 of them.
std::vector<double> rope_frequencies(const RopeSpec& spec, int64_t head_dim);

// table [positions, head_dim], f32 or f64, in `memory`: cosines, then sines, of position * frequency.
void fill_rope_table(const RopeSpec& spec, const Tensor& table, const Memory& memory);

}  // namespace weft
