#include "weft/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "weft/base/error.h"
#include "weft/checkpoint/durable_file.h"

namespace weft {
namespace {

void sort_as_in_files(std::vector<TensorToWrite>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorToWrite& a, const TensorToWrite& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
}

void check_names(const std::vector<TensorToWrite>& tensors) {
  std::vector<std::string> names;
  for (const TensorToWrite& t : tensors) names.push_back(t.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  WEFT_CHECK(twice == names.end(), "two tensors are named {}", *twice);
  WEFT_CHECK(!std::binary_search(names.begin(), names.end(), "__metadata__"), "a tensor is named __metadata__");
}

// The reference writes "dtype" before "shape" before "data_offsets", and metadata first: keys keep this order.
std::string header_of(const std::vector<TensorToWrite>& tensors, const SafetensorsMetadata& metadata) {
  std::string text = "{";
  const auto add = [&](const std::string& name, const nlohmann::ordered_json& value) {
    text += (text.size() > 1 ? "," : "") + nlohmann::ordered_json(name).dump() + ":" + value.dump();
  };
  if (!metadata.empty()) add("__metadata__", metadata);
  int64_t offset = 0;
  for (const TensorToWrite& t : tensors) {
    const int64_t end = offset + t.num_bytes();
    add(t.name, {{"dtype", name_of(t.dtype)}, {"shape", t.shape}, {"data_offsets", {offset, end}}});
    offset = end;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  WEFT_CHECK(text.size() <= 100'000'000, "a header of {} bytes; the format allows 100 MB", text.size());
  return text;
}

void write_data(DurableFile& file, const TensorToWrite& tensor) {
  const int64_t begin = file.size();
  tensor.data([&](std::span<const std::byte> bytes) { file.write(bytes); });
  WEFT_CHECK(file.size() - begin == tensor.num_bytes(), "{} gave {} bytes instead of {}", tensor.name,
             file.size() - begin, tensor.num_bytes());
}

// Which tensors go together, in order.
std::vector<std::vector<TensorToWrite>> divide(std::vector<TensorToWrite> tensors, int64_t max_file_bytes) {
  std::vector<std::vector<TensorToWrite>> files(1);
  int64_t bytes = 0;
  for (TensorToWrite& tensor : tensors) {
    if (!files.back().empty() && bytes + tensor.num_bytes() > max_file_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += tensor.num_bytes();
    files.back().push_back(std::move(tensor));
  }
  return files;
}

}  // namespace

int64_t TensorToWrite::num_bytes() const {
  int64_t bits = bits_of(dtype);
  for (const int64_t size : shape) bits *= size;
  return bits / 8;
}

void write_safetensors(const std::filesystem::path& path, std::vector<TensorToWrite> tensors,
                       const SafetensorsMetadata& metadata) {
  check_names(tensors);
  sort_as_in_files(tensors);
  const std::string header = header_of(tensors, metadata);
  const uint64_t size = header.size();
  char prefix[8];
  std::memcpy(prefix, &size, 8);
  DurableFile file(path);
  file.write(std::string_view(prefix, 8));
  file.write(header);
  for (const TensorToWrite& tensor : tensors) write_data(file, tensor);
  file.commit();
}

void write_safetensors_folder(const std::filesystem::path& folder, std::vector<TensorToWrite> tensors,
                              int64_t max_file_bytes) {
  check_names(tensors);
  std::vector<std::vector<TensorToWrite>> files = divide(std::move(tensors), max_file_bytes);
  if (files.size() == 1) return write_safetensors(folder / "model.safetensors", std::move(files[0]), model_metadata());
  nlohmann::json weight_map = nlohmann::json::object();
  int64_t total = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    for (const TensorToWrite& t : files[i]) {
      weight_map[t.name] = name;
      total += t.num_bytes();
    }
    write_safetensors(folder / name, std::move(files[i]), model_metadata());
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
  write_file_durably(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace weft
