#include "weft/checkpoint/safetensors.h"

#include <algorithm>
#include <numeric>

#include "weft/base/error.h"
#include "weft/base/is_there.h"
#include "weft/base/json.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// Collects what is wrong, so that one message tells all of it.
class Complaints {
 public:
  void add(const std::string& what) {
    if (++count_ <= 20) list_ += "\n  " + what;
  }
  void throw_if_any(const fs::path& path, std::string_view what) const {
    if (count_ == 0) return;
    const std::string more = count_ > 20 ? fmt::format("\n  and {} more", count_ - 20) : "";
    throw FileError(fmt::format("{}: {}:{}{}", path.string(), what, list_, more));
  }

 private:
  int64_t count_ = 0;
  std::string list_;
};

// A name that can only be a file of the folder itself.
bool is_plain_file_name(const std::string& name) {
  return name.size() > 12 && name.size() <= 255 && name.ends_with(".safetensors") && name[0] != '.' &&
         name.find_first_of("/\\") == std::string::npos && name.find('\0') == std::string::npos;
}

// tensor name -> file name
using WeightMap = std::map<std::string, std::string>;

WeightMap read_index(const fs::path& index) {
  const nlohmann::json json = read_json_file(index);
  const JsonFields weights = JsonFields(json, index.string()).object("weight_map");
  WeightMap map;
  for (const auto& [tensor, file] : weights.json().items()) {
    if (!file.is_string()) weights.fail(tensor, "a file name");
    if (!is_plain_file_name(file.get<std::string>()))
      weights.fail(tensor, "the name of a .safetensors file in the same folder");
    map.emplace(tensor, file.get<std::string>());
  }
  return map;
}

}  // namespace

int64_t matrix_rows(std::span<const int64_t> shape) { return shape.empty() ? 1 : shape[0]; }

int64_t matrix_cols(std::span<const int64_t> shape) {
  if (shape.empty()) return 1;
  return std::accumulate(shape.begin() + 1, shape.end(), int64_t{1}, std::multiplies<>());
}

SafetensorsFile SafetensorsFile::open(const fs::path& path) {
  MappedFile file(path);
  SafetensorsHeader header = parse_safetensors_header(file.text(), path.string());
  return SafetensorsFile(std::move(file), std::move(header));
}

std::span<const std::byte> SafetensorsFile::bytes(const SafetensorsEntry& entry) const {
  return file_.bytes().subspan(size_t(header_.data_begin + entry.begin), size_t(entry.end - entry.begin));
}

SafetensorsFolder SafetensorsFolder::open(const fs::path& folder) {
  SafetensorsFolder result(folder);
  const fs::path single = folder / "model.safetensors", index = folder / "model.safetensors.index.json";
  if (is_there(single))
    result.files_.push_back(SafetensorsFile::open(single));
  else if (is_there(index))
    result.open_indexed(index);
  else
    throw FileError(fmt::format(
        "{}: there is neither model.safetensors nor model.safetensors.index.json in this folder{}", folder.string(),
        is_there(folder / "pytorch_model.bin") || is_there(folder / "pytorch_model.bin.index.json")
            ? "; convert its pytorch_model.bin to safetensors first"
            : "; give the folder of a model, or start from random weights (model.init)"));
  result.collect();
  return result;
}

SafetensorsFolder SafetensorsFolder::of_file(const fs::path& file) {
  SafetensorsFolder result(file);
  result.files_.push_back(SafetensorsFile::open(file));
  result.collect();
  return result;
}

void SafetensorsFolder::open_indexed(const fs::path& index) {
  const WeightMap map = read_index(index);
  std::map<std::string, size_t> file_of;  // name -> position in files_
  for (const auto& [tensor, file] : map) file_of.emplace(file, 0);
  Complaints absent;
  for (const auto& [name, position] : file_of)
    if (!is_there(path_ / name)) absent.add(in_quotes(name));
  absent.throw_if_any(index, "names files that are not in the folder (fetch them)");
  for (auto& [name, position] : file_of) {
    position = files_.size();
    files_.push_back(SafetensorsFile::open(path_ / name));
  }
  Complaints wrong;
  for (const auto& [tensor, file] : map)
    if (files_[file_of.at(file)].find(tensor) == nullptr)
      wrong.add(fmt::format("{} is not in {}", in_quotes(tensor), in_quotes(file)));
  for (const SafetensorsFile& file : files_) {
    const std::string name = file.path().filename().string();
    for (const SafetensorsEntry& entry : file.tensors()) {
      const auto named = map.find(entry.name);
      if (named == map.end())
        wrong.add(fmt::format("{} of {} is not in the index", in_quotes(entry.name), in_quotes(name)));
      else if (named->second != name)
        wrong.add(fmt::format("{} is in {}, but the index says {}", in_quotes(entry.name), in_quotes(name),
                              in_quotes(named->second)));
    }
  }
  wrong.throw_if_any(index, "the index does not tell what is in the files");
}

void SafetensorsFolder::collect() {
  for (const SafetensorsFile& file : files_)
    for (const SafetensorsEntry& entry : file.tensors()) tensors_.push_back({&entry, &file});
  std::sort(tensors_.begin(), tensors_.end(), [](const Tensor& a, const Tensor& b) { return a.name() < b.name(); });
}

const SafetensorsFolder::Tensor* SafetensorsFolder::find(std::string_view name) const {
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const Tensor& t, std::string_view wanted) { return t.name() < wanted; });
  return at != tensors_.end() && at->name() == name ? &*at : nullptr;
}

FileMatrix SafetensorsFolder::matrix(const Tensor& tensor) const {
  const SafetensorsEntry& entry = *tensor.entry;
  if (!is_convertible(entry.dtype))
    throw FileError(fmt::format("{}: tensor {} holds {}; weft reads weights of F64, F32, BF16 and F16",
                                tensor.file->path().string(), in_quotes(entry.name), name_of(entry.dtype)));
  return {bytes(tensor), entry.dtype, matrix_rows(entry.shape), matrix_cols(entry.shape)};
}

}  // namespace weft
