// An adapter that makes of one model nearly another: the difference of two full models, in low rank.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "weft/checkpoint/safetensors_layout.h"
#include "weft/models/hf_config.h"

namespace weft {

// What is taken: LoRA of `rank`, alpha = rank, on `targets` of the base's matrices (as PeftConfig's).
struct ExtractRequest {
  std::filesystem::path model, base;  // folders or GGUF files
  int64_t rank = 16;
  std::vector<std::string> targets = {std::string(kAllLinear)};
  int threads = 1;
};

// The base's configuration with that adapter. Throws ConfigError, which begins with "--lora-of", where the model is not
// of the base's shape, or the base cannot have the adapter.
HfConfig extracted_config(const ExtractRequest& request);

struct Extracted {
  double all = 0, left = 0;  // roots of the sums of squares: of the differences, and of what the adapter lacks of them
  std::string worst = {};    // the matrix of which the adapter lacks the largest share, ...
  double worst_share = 0;    // ... and that
  int64_t num_matrices = 0;  // with an adapter
  std::vector<std::string> others = {};  // weights that differ and have none,
  double others_all = 0;                 // root of the sum of squares of their differences
};

// Writes the adapter's tensors into `out`, whose file of `layout` (hf_layout of `config`'s model, f32) has been
// created. One matrix is in memory at a time; `told` hears how many of how many are done. Throws FileError, and
// ConfigError where no matrix differs.
Extracted write_extracted(const ExtractRequest& request, const HfConfig& config, const SafetensorsLayout& layout,
                          const std::filesystem::path& out, const std::function<void(int64_t, int64_t)>& told);

}  // namespace weft
