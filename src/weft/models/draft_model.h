// A draft: a smaller model made of some of another's blocks, as a student that begins with what its teacher knows.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "weft/checkpoint/shared_writer.h"
#include "weft/models/hf_config.h"
#include "weft/models/weight_source.h"
#include "weft/tensor/dtype.h"

namespace weft {

// `count` of `num_layers` blocks, evenly over the model, the first and the last among them: 2 <= count <= num_layers.
std::vector<int64_t> spread_layers(int64_t num_layers, int64_t count);

// The draft that has these blocks of the model (each once, in its order), and its config.json: what that says of each
// layer (windows, experts) is cut likewise. Throws ConfigError, beginning with "--layers", where the model has no such
// block, or its family's config.json cannot say that a model has just these.
HfConfig draft_config(const HfConfig& model, std::span<const int64_t> layers, DType dtype);

// Writes the draft's tensors, of blocks `layers` of `model` and all that is no block's, in `type` (see copy_tensor);
// the writer's layout is that of hf_tensors(draft). Throws FileError.
void write_draft(const WeightSource& model, const ModelSpec& draft, std::span<const int64_t> layers, FileDType type,
                 SharedWriter& writer);

}  // namespace weft
