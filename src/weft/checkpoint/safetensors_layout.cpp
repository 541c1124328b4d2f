#include "weft/checkpoint/safetensors_layout.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"

namespace weft {
namespace {

// The reference writes "dtype" before "shape" before "data_offsets", and metadata first: keys keep this order.
std::string header_of(const std::vector<TensorInFile>& tensors, const SafetensorsMetadata& metadata) {
  std::string text = "{";
  const auto add = [&](const std::string& name, const nlohmann::ordered_json& value) {
    text += (text.size() > 1 ? "," : "") + nlohmann::ordered_json(name).dump() + ":" + value.dump();
  };
  if (!metadata.empty()) add("__metadata__", metadata);
  int64_t offset = 0;
  for (const TensorInFile& t : tensors) {
    const int64_t end = offset + t.num_bytes();
    add(t.name, {{"dtype", name_of(t.dtype)}, {"shape", t.shape}, {"data_offsets", {offset, end}}});
    offset = end;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  WEFT_CHECK(text.size() <= 100'000'000, "a header of {} bytes; the format allows 100 MB", text.size());
  return text;
}

// Which tensors go together, in order.
std::vector<std::vector<TensorInFile>> divide(std::vector<TensorInFile> tensors, int64_t max_file_bytes) {
  std::vector<std::vector<TensorInFile>> files(1);
  int64_t bytes = 0;
  for (TensorInFile& tensor : tensors) {
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

int64_t TensorInFile::num_bytes() const {
  int64_t bits = bits_of(dtype);
  for (const int64_t size : shape) bits *= size;
  return bits / 8;
}

SafetensorsLayout::SafetensorsLayout(std::string file, std::vector<TensorInFile> tensors,
                                     const SafetensorsMetadata& metadata) {
  add(std::move(file), std::move(tensors), metadata);
}

void SafetensorsLayout::add(std::string file, std::vector<TensorInFile> tensors, const SafetensorsMetadata& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInFile& a, const TensorInFile& b) {
    return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
  });
  const std::string header = header_of(tensors, metadata);
  const uint64_t size = header.size();
  std::string head(8, '\0');
  std::memcpy(head.data(), &size, 8);
  head += header;
  auto at = int64_t(head.size());
  for (const TensorInFile& t : tensors) {
    WEFT_CHECK(t.name != "__metadata__", "a tensor is named __metadata__");
    const Place place{files_.size(), at, t.num_bytes(), places_.size(), t.word_bytes()};
    const bool is_new = places_.try_emplace(t.name, place).second;
    WEFT_CHECK(is_new, "two tensors are named {}", t.name);
    at += t.num_bytes();
  }
  files_.push_back({std::move(file), std::move(head), std::move(tensors), at});
}

SafetensorsLayout SafetensorsLayout::of_model(std::vector<TensorInFile> tensors, int64_t max_file_bytes) {
  SafetensorsLayout layout;
  std::vector<std::vector<TensorInFile>> files = divide(std::move(tensors), max_file_bytes);
  if (files.size() == 1) {
    layout.add("model.safetensors", std::move(files[0]), model_metadata());
    return layout;
  }
  nlohmann::json weight_map = nlohmann::json::object();
  int64_t total = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    for (const TensorInFile& t : files[i]) {
      weight_map[t.name] = name;
      total += t.num_bytes();
    }
    layout.add(name, std::move(files[i]), model_metadata());
  }
  layout.index_ =
      nlohmann::json{{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}}.dump(2) + "\n";
  return layout;
}

SafetensorsLayout::Place SafetensorsLayout::find(std::string_view tensor) const {
  const auto found = places_.find(tensor);
  WEFT_CHECK(found != places_.end(), "no tensor {} in this layout", tensor);
  return found->second;
}

}  // namespace weft
