// Weights between a ParamStore and a Hugging Face folder.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "weft/checkpoint/shared_writer.h"
#include "weft/models/model_spec.h"
#include "weft/sharding/param_store.h"

namespace weft {

// Reads what this rank keeps of the weights of the model from model.safetensors (or its shards) of `folder`, which may
// also be a GGUF file, into the masters of `params`, in their dtype or as codes, transposed where the file's layout is
// (GPT-2). Returns what was passed over, in words. Throws FileError naming every tensor that is missing, of another
// shape, or unexpected. Follow with masters_changed. Where the folder is a checkpoint of weft's, it is compared with
// its hashes first: DamageError. Collective over the ranks of `params`, which share that.
std::vector<std::string> load_hf_weights(const std::filesystem::path& folder, const ModelSpec& model,
                                         const ParamStore& params, int num_threads);
// The same of a folder that has been checked. Not collective. Of an adapter's folder, the base model's weights (which
// adapter_config.json names) and the adapter's; of any other, those of an adapter are left as they are.
std::vector<std::string> read_hf_weights(const std::filesystem::path& folder, const ModelSpec& model,
                                         const ParamStore& params, int num_threads);
// The adapter's alone, of its folder.
void read_adapter_weights(const std::filesystem::path& folder, const ModelSpec& model, const ParamStore& params);

// The files that hold a model's weights, in this dtype, with the names and layouts of its family; of a model with an
// adapter, that of the adapter's.
SafetensorsLayout hf_layout(const ModelSpec& model, DType dtype);
// Writes what this rank keeps of the masters into files of that layout.
void write_hf_weights(SharedWriter& writer, const ModelSpec& model, const ParamStore& params);
int64_t bytes_of_hf_weights(const ModelSpec& model, const ParamStore& params);  // that it writes; needs no memory

}  // namespace weft
