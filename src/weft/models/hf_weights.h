// Weights between a ParamStore and a Hugging Face folder.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "weft/dist/param_store.h"
#include "weft/models/model_spec.h"

namespace weft {

// Reads every weight of the model from model.safetensors (or its shards) of `folder` into the masters of `params`, in
// their dtype, transposed where the file's layout is (GPT-2). Returns what was passed over, in words. Throws FileError
// naming every tensor that is missing, of another shape, or unexpected. Follow with masters_changed.
std::vector<std::string> load_hf_weights(const std::filesystem::path& folder, const ModelSpec& model,
                                         const ParamStore& params);

// Writes the masters as model.safetensors (or shards) into `folder`, with the names and layouts of the family.
void save_hf_weights(const std::filesystem::path& folder, const ModelSpec& model, const ParamStore& params);

}  // namespace weft
