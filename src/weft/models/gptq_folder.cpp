#include "weft/models/gptq_folder.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr int64_t kSides = 32;  // sides of a matrix in codes are multiples of it

FileDType type_of_tensor(const HfTensor& t, FileDType type) {
  return t.shape.back() % 2 == 0 ? type : FileDType::f32;  // SharedWriter: whole words
}

float as_stored(float x, FileDType type) {
  return type == FileDType::f16 ? float(f16(x)) : type == FileDType::bf16 ? float(bf16(x)) : x;
}

// Where a block's names begin behind "model.layers.3."; 0: no tensor of a block.
size_t block_prefix(const std::string& name) {
  for (const std::string_view of : {"layers.", "h."}) {
    const size_t at = name.find(of);
    if (at == std::string::npos || (at > 0 && name[at - 1] != '.')) continue;
    const size_t end = name.find('.', at + of.size());
    if (end != std::string::npos) return end + 1;
  }
  return 0;
}

bool is_block_matrix(const HfTensor& t) { return block_prefix(t.name) > 0 && t.shape.size() == 2; }

bool may_be_in_codes(const HfTensor& t) {
  return is_block_matrix(t) && t.slices == 1 && !t.param.ends_with(".router.weight") && t.rows % kSides == 0 &&
         t.cols() % kSides == 0;
}

std::span<const std::byte> bytes_of(const auto& numbers) { return std::as_bytes(std::span(numbers)); }

}  // namespace

SafetensorsLayout layout_in(const std::vector<HfTensor>& tensors, FileDType type) {
  std::vector<TensorInFile> all;
  for (const HfTensor& t : tensors)
    if (t.slice == 0) all.push_back({t.name, type_of_tensor(t, type), t.shape});
  return SafetensorsLayout::of_model(std::move(all));
}

void copy_tensor(const WeightSource& source, size_t index, FileDType wanted, SharedWriter& writer,
                 const std::string& as) {
  constexpr int64_t kAtOnce = 1 << 20;  // numbers
  const HfTensor& t = source.tensors()[index];
  const std::string& name = as.empty() ? t.name : as;
  const FileDType type = type_of_tensor(t, wanted);
  const int64_t cols = t.cols();
  const int64_t step = t.transposed ? t.rows : std::clamp<int64_t>(kAtOnce / cols / 2 * 2, 2, t.rows + t.rows % 2);
  std::vector<float> numbers(size_t(std::min(step, t.rows) * cols));
  int64_t at = t.slice * t.rows * cols * bits_of(type) / 8;
  for (int64_t first = 0; first < t.rows; first += step) {
    const int64_t count = std::min(step, t.rows - first);
    source.read(index, {first, 0},
                {.data = numbers.data(), .dtype = DType::f32, .rows = count, .cols = cols, .row_stride = cols});
    for (const float x : std::span(numbers).first(size_t(count * cols)))
      if (!std::isfinite(as_stored(x, type)))
        throw FileError(fmt::format("{} holds {}, which {} cannot hold", t.name, x, name_of(type)));
    stream_matrix({.data = numbers.data(), .dtype = DType::f32, .rows = count, .cols = cols, .row_stride = cols}, type,
                  t.transposed, [&](std::span<const std::byte> bytes) {
                    writer.write(name, at, bytes);
                    at += int64_t(bytes.size());
                  });
  }
}

GptqFolder::GptqFolder(const HfConfig& config, const GptqFormat& format)
    : config_(config), format_(format), tensors_(hf_tensors(config.spec)) {
  if (config.spec.family == Family::gpt_oss)
    throw ConfigError(
        "--gptq: a model of the family gpt_oss has the matrices of its experts in one tensor, for which the format has "
        "no place; the nearest that works: --bf16");
  std::set<std::string>
      stay;  // weights: other programs, too, have matrices of one input as one (vLLM refuses a mixture)
  for (const HfTensor& t : tensors_)
    if (is_block_matrix(t) && !may_be_in_codes(t)) stay.insert(t.param);
  for (const HfTensor& t : tensors_) in_codes_.push_back(may_be_in_codes(t) && !stay.contains(t.param));
  if (num_in_codes() == 0)
    throw ConfigError(
        fmt::format("--gptq: no matrix of a block has two sides that are multiples of {}, as the programs that read "
                    "such folders want it; the nearest that works: --bf16",
                    kSides));
  require_groups();
}

void GptqFolder::require_groups() const {
  const auto fits = [&](int64_t size, const HfTensor& t) { return size == 0 || t.cols() % size == 0; };
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!in_codes(i) || fits(format_.group_size, tensors_[i])) continue;
    int64_t nearest = 64;
    for (size_t k = 0; k < tensors_.size(); ++k)
      if (in_codes(k) && !fits(nearest, tensors_[k])) nearest = kSides;
    throw ConfigError(
        fmt::format("--group-size {}: {} has rows of {} numbers, no multiple of it; the nearest that "
                    "works: --group-size {}",
                    format_.group_size, tensors_[i].name, tensors_[i].cols(), nearest));
  }
}

int64_t GptqFolder::num_in_codes() const { return std::count(in_codes_.begin(), in_codes_.end(), true); }

std::vector<std::string> GptqFolder::notes() const {
  int64_t count = 0;
  std::string first;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const HfTensor& t = tensors_[i];
    if (in_codes(i) || !is_block_matrix(t) || t.rows == 1 || t.param.ends_with(".router.weight")) continue;
    if (count++ == 0) first = fmt::format("{} [{}, {}]", t.name, t.rows, t.cols());
  }
  if (count == 0) return {};
  return {
      fmt::format("{} matrices of blocks stay in F16, as a side of them, or of one that has the same input, is no "
                  "multiple of {}: {}{}",
                  count, kSides, first, count > 1 ? " and others" : "")};
}

// Programs that replace all matrices of a block by such in codes must be told which.
std::vector<std::string> GptqFolder::modules() const {
  std::set<std::string> names;
  bool all = true;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const std::string& name = tensors_[i].name;
    if (!is_block_matrix(tensors_[i])) continue;
    all = all && in_codes(i);
    const size_t begin = block_prefix(name);
    if (in_codes(i)) names.insert(name.substr(begin, name.rfind('.') - begin));
  }
  return all ? std::vector<std::string>() : std::vector<std::string>(names.begin(), names.end());
}

SafetensorsLayout GptqFolder::layout() const {
  std::vector<TensorInFile> all;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const HfTensor& t = tensors_[i];
    if (!in_codes(i)) {
      if (t.slice == 0) all.push_back({t.name, type_of_tensor(t, kBesideCodes), t.shape});
      continue;
    }
    const std::string module = t.name.substr(0, t.name.rfind('.'));
    const GptqTensorShapes shapes = gptq_shapes(format_, t.rows, t.cols());
    all.push_back({module + ".qweight", FileDType::i32, shapes.codes});
    all.push_back({module + ".qzeros", FileDType::i32, shapes.zeros});
    all.push_back({module + ".scales", FileDType::f16, shapes.scales});
    all.push_back({module + ".g_idx", FileDType::i32, shapes.group_of});
  }
  return SafetensorsLayout::of_model(std::move(all));
}

nlohmann::json GptqFolder::config() const {
  nlohmann::json json = hf_config_of(config_, DType::f16);
  json[kQuantisationKey] = gptq_to_json(format_, modules());
  return json;
}

void GptqFolder::write(size_t tensor, const GptqMatrix& matrix, SharedWriter& writer) const {
  const std::string& name = tensors_[tensor].name;
  const std::string module = name.substr(0, name.rfind('.'));
  writer.write(module + ".qweight", 0, bytes_of(packed_codes(format_, matrix)));
  writer.write(module + ".qzeros", 0, bytes_of(packed_zeros(format_, matrix)));
  writer.write(module + ".scales", 0, bytes_of(matrix.scales));
  writer.write(module + ".g_idx", 0, bytes_of(matrix.group_of));
}

}  // namespace weft
