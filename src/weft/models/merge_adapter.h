// An adapter and its base as one model.
#pragma once
#include <filesystem>

#include "weft/checkpoint/safetensors_layout.h"
#include "weft/models/hf_config.h"
#include "weft/tensor/dtype.h"

namespace weft {

// The dtype of a merged model's weights: bf16 where all of the base's are, else f32.
DType merged_dtype(const std::filesystem::path& base);

// Writes W + scale B A, with rows as long as the adapter's magnitudes say, in place of each W that has an adapter, and
// the base's other tensors as they are (both as codes stood for them, where the adapter was trained beside a base in
// codes), and of a reward model the adapter's score, into `out`, whose files of `layout` (hf_layout
// of the model without adapter, in merged_dtype) have been created. `config` is that of the adapter's folder. Sums are
// kept in f64; one tensor is in memory at a time. Throws FileError.
void write_merged(const std::filesystem::path& adapter, const HfConfig& config, const SafetensorsLayout& layout,
                  DType dtype, const std::filesystem::path& out);

}  // namespace weft
