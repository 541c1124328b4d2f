// Adapters and their base as one model.
#pragma once
#include <filesystem>
#include <vector>

#include "weft/checkpoint/safetensors_layout.h"
#include "weft/models/hf_config.h"
#include "weft/tensor/dtype.h"

namespace weft {

// The dtype of a merged model's weights: bf16 where all of the base's are, else f32.
DType merged_dtype(const std::filesystem::path& base);

// An adapter to merge: its folder, read_hf_config of that, and how much of what it adds is wanted.
struct AdapterToMerge {
  std::filesystem::path folder;
  HfConfig config;
  double weight = 1;
};

// Throws ConfigError where several adapters cannot be merged with these weights into one model: they are to belong to
// the same base, kept alike beside each, and to add up (as DoRA and scores do not).
void require_mergeable(const std::vector<AdapterToMerge>& adapters);

// Writes W + the sum over the adapters of weight x scale B A, with rows as long as the only adapter's magnitudes say,
// in place of each W that has an adapter, and the base's other tensors as they are (both as codes stood for them, where
// adapters were trained beside a base in codes), and of a reward model the adapter's score, into `out`, whose files of
// `layout` (hf_layout of the model without adapter, in merged_dtype) have been created. Sums are kept in f64; one
// tensor is in memory at a time. `adapters`, of which there is one at least, have passed require_mergeable. Throws
// FileError.
void write_merged(const std::vector<AdapterToMerge>& adapters, const SafetensorsLayout& layout, DType dtype,
                  const std::filesystem::path& out);

}  // namespace weft
