#include "weft/checkpoint/safetensors_writer.h"

#include <utility>

#include "weft/base/error.h"
#include "weft/checkpoint/durable_file.h"

namespace weft {
namespace {

void write_data(DurableFile& file, const TensorToWrite& tensor) {
  const int64_t begin = file.size();
  tensor.data([&](std::span<const std::byte> bytes) { file.write(bytes); });
  WEFT_CHECK(file.size() - begin == tensor.num_bytes(), "{} gave {} bytes instead of {}", tensor.name,
             file.size() - begin, tensor.num_bytes());
}

std::vector<TensorInFile> without_data(const std::vector<TensorToWrite>& tensors) {
  std::vector<TensorInFile> all;
  for (const TensorToWrite& t : tensors) all.push_back({t.name, t.dtype, t.shape});
  return all;
}

void write_file(const std::filesystem::path& path, const SafetensorsLayout::File& layout,
                const std::vector<TensorToWrite>& tensors) {
  DurableFile file(path);
  file.write(layout.head);
  for (const TensorInFile& next : layout.tensors)
    for (const TensorToWrite& t : tensors)
      if (t.name == next.name) write_data(file, t);
  file.commit();
}

}  // namespace

int64_t TensorToWrite::num_bytes() const { return TensorInFile{name, dtype, shape}.num_bytes(); }

void write_safetensors(const std::filesystem::path& path, const std::vector<TensorToWrite>& tensors,
                       const SafetensorsMetadata& metadata) {
  write_file(path, SafetensorsLayout("", without_data(tensors), metadata).files()[0], tensors);
}

void write_safetensors_folder(const std::filesystem::path& folder, const std::vector<TensorToWrite>& tensors,
                              int64_t max_file_bytes) {
  const SafetensorsLayout layout = SafetensorsLayout::of_model(without_data(tensors), max_file_bytes);
  for (const SafetensorsLayout::File& file : layout.files()) write_file(folder / file.name, file, tensors);
  if (!layout.index().empty()) write_file_durably(folder / "model.safetensors.index.json", layout.index());
}

}  // namespace weft
