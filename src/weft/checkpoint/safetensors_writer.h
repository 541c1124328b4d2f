// Writing safetensors: byte for byte what the format's reference writer makes of the same tensors.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "weft/checkpoint/convert.h"
#include "weft/checkpoint/safetensors_layout.h"

namespace weft {

// A tensor to be written. `data` is called once, gives its bytes in order, and may throw.
struct TensorToWrite {
  std::string name;
  FileDType dtype = FileDType::f32;
  std::vector<int64_t> shape;
  std::function<void(const ByteSink&)> data;

  int64_t num_bytes() const;
};

// Writes one file: whole, or not at all (DurableFile), laid out as SafetensorsLayout says. Holds no tensor in memory.
// Throws FileError where that fails; CheckFailure where names repeat or data gives more or fewer bytes than its shape.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorToWrite>& tensors,
                       const SafetensorsMetadata& metadata);

// Writes a model's files, as SafetensorsLayout::of_model lays them out. Files of an earlier, differently divided model
// in that folder are not removed: write to a new one (DurableFolder).
void write_safetensors_folder(const std::filesystem::path& folder, const std::vector<TensorToWrite>& tensors,
                              int64_t max_file_bytes = 5'000'000'000);

}  // namespace weft
