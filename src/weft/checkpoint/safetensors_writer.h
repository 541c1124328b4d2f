// Writing safetensors: byte for byte what the format's reference writer makes of the same tensors.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "weft/checkpoint/convert.h"
#include "weft/checkpoint/safetensors_header.h"

namespace weft {

// A tensor to be written. `data` is called once, gives its bytes in order, and may throw.
struct TensorToWrite {
  std::string name;
  FileDType dtype = FileDType::f32;
  std::vector<int64_t> shape;
  std::function<void(const ByteSink&)> data;

  int64_t num_bytes() const;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

// Writes one file: whole, or not at all (DurableFile). In the file, tensors stand by alignment, the widest first, then
// by name, whatever their order here; the header is padded with spaces to a multiple of 8. Holds no tensor in memory.
// Throws FileError where that fails; CheckFailure where names repeat or data gives more or fewer bytes than its shape.
void write_safetensors(const std::filesystem::path& path, std::vector<TensorToWrite> tensors,
                       const SafetensorsMetadata& metadata);

// What other programs look for in a model's file.
inline SafetensorsMetadata model_metadata() { return {{"format", "pt"}}; }

// Writes model.safetensors, or, where that would hold more than `max_file_bytes` of numbers,
// model-00001-of-0000N.safetensors
// ... and model.safetensors.index.json: files are filled in the order of `tensors`; a tensor larger than that has its
// own. Files of an earlier, differently divided model in that folder are not removed: write to a new one
// (DurableFolder).
void write_safetensors_folder(const std::filesystem::path& folder, std::vector<TensorToWrite> tensors,
                              int64_t max_file_bytes = 5'000'000'000);

}  // namespace weft
