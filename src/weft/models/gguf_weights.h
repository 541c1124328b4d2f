// The weights in a GGUF file.
#pragma once
#include <filesystem>
#include <memory>

#include "weft/models/weight_source.h"

namespace weft {

// As open_weights. Tensors are decoded row by row, as they are read.
std::unique_ptr<WeightSource> open_gguf_weights(const std::filesystem::path& path, const ModelSpec& model);

}  // namespace weft
