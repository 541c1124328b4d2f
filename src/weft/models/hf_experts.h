// Mixtures of experts as config.json describes them.
#pragma once
#include "weft/models/hf_fields.h"
#include "weft/models/model_spec.h"

namespace weft {

// Reads the experts of a family that has them into `model`: how many, how they are chosen, which blocks have them.
// After the rest of the model, with its windows. Other families are left as they are.
void read_experts(HfFields& fields, ModelSpec& model);

}  // namespace weft
