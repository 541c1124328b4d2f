// config.json of DeepSeek-V2 and V3.
#pragma once
#include "weft/models/hf_fields.h"
#include "weft/models/model_spec.h"

namespace weft {

// Throws as parse_hf_config does. What weft does with each field: docs/formats/hugging_face.md
ModelSpec read_deepseek(HfFields& fields, Family family);

}  // namespace weft
