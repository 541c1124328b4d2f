// Files of tensors for tests, written as a checkpoint's are.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "weft/checkpoint/shared_writer.h"

namespace weft::testing {

struct TensorToWrite {
  std::string name;
  FileDType dtype = FileDType::f32;
  std::vector<int64_t> shape;
  std::string bytes;
};

inline std::vector<TensorInFile> without_bytes(const std::vector<TensorToWrite>& tensors) {
  std::vector<TensorInFile> all;
  for (const TensorToWrite& t : tensors) all.push_back({t.name, t.dtype, t.shape});
  return all;
}

inline void write_files(const std::filesystem::path& folder, const SafetensorsLayout& layout,
                        const std::vector<TensorToWrite>& tensors) {
  create_files(folder, layout);
  SharedWriter writer(folder, layout);
  for (const TensorToWrite& t : tensors) writer.write(t.name, 0, std::as_bytes(std::span(t.bytes)));
  writer.sync();
}

inline void write_safetensors(const std::filesystem::path& file, const std::vector<TensorToWrite>& tensors,
                              const SafetensorsMetadata& metadata = {}) {
  write_files(file.parent_path(), {file.filename().string(), without_bytes(tensors), metadata}, tensors);
}

inline void write_safetensors_folder(const std::filesystem::path& folder, const std::vector<TensorToWrite>& tensors,
                                     int64_t max_file_bytes = 5'000'000'000) {
  write_files(folder, SafetensorsLayout::of_model(without_bytes(tensors), max_file_bytes), tensors);
}

}  // namespace weft::testing
