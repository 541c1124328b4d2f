// Rotary positions and sliding windows as config.json describes them.
#pragma once
#include <vector>

#include "weft/models/hf_fields.h"
#include "weft/models/model_spec.h"

namespace weft {

// The sizes that rotations are read for.
struct RopeSizes {
  int64_t head_dim, max_positions;
  double usual_theta = 10000;  // where none is stated
  bool partial = false;        // the family may turn a part of each head
};

// From "rope_theta" and "rope_scaling", or "rope_parameters", as newer versions of transformers write them.
RopeSpec read_rope(HfFields& fields, const RopeSizes& sizes);
// gemma3's, of layers that see everything and of those with a window, which "rope_local_base_freq" is for.
struct RopePair {
  RopeSpec full = {}, sliding = {};
};
RopePair read_rope_pair(HfFields& fields, const RopeSizes& sizes);

// One number per layer: keys a query sees, 0 for all.
std::vector<int64_t> read_windows(HfFields& fields, Family family, int64_t num_layers);

}  // namespace weft
