// Rotary positions and sliding windows as config.json describes them.
#pragma once
#include <vector>

#include "weft/models/hf_fields.h"
#include "weft/models/model_spec.h"

namespace weft {

// From "rope_theta" and "rope_scaling", or "rope_parameters", as newer versions of transformers write them.
RopeSpec read_rope(HfFields& fields);

// One number per layer: keys a query sees, 0 for all.
std::vector<int64_t> read_windows(HfFields& fields, Family family, int64_t num_layers);

}  // namespace weft
