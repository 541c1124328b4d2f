#include "weft/models/gptq_format.h"

#include <algorithm>
#include <cstring>

#include "weft/base/error.h"
#include "weft/base/is_there.h"
#include "weft/base/json.h"

namespace weft {
namespace {

using Json = nlohmann::json;

constexpr const char* kFullAdvice = "name the model in full precision, or one in codes of 2, 4 or 8 bits";

[[noreturn]] void refuse_field(const JsonFields& fields, std::string_view key, std::string_view why) {
  throw ConfigError(fmt::format("{}: {} is not supported: {}", fields.where(key), shown(*fields.find(key)), why));
}

// Fields that say how matrices are stored, and that weft has in one way.
void require_stored_so(const JsonFields& fields) {
  for (const char* key : {"is_marlin_format", "use_exllama_format"})
    if (fields.flag(key, false))
      refuse_field(fields, key, "codes for one kind of kernel; let its program write \"gptq\"");
  if (fields.string("pack_dtype", "int32") != "int32") refuse_field(fields, "pack_dtype", "weft reads int32");
  // What it leaves out is seen by the tensors; what it gives other bits, is not.
  if (const Json* dynamic = fields.find("dynamic"); dynamic != nullptr && dynamic->is_object())
    for (const auto& [modules, change] : dynamic->items())
      if (!modules.starts_with("-:") && !change.empty())
        refuse_field(fields, "dynamic", "weft reads folders whose matrices in codes are all alike");
}

template <class T>
T number_at(std::span<const std::byte> bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * int64_t(sizeof(T)), sizeof(T));
  return value;
}

// The code at `place` of consecutive ones in words.
uint32_t code_in(uint32_t word, const GptqFormat& f, int64_t place) {
  return word >> (place % f.in_a_word() * f.bits) & uint32_t(f.largest());
}

// Beyond the largest, 1 more is 0: other programs wrote a zero point of 0 less by 1 so.
int zero_of(uint32_t stored, const GptqFormat& f) {
  return int(f.zeros_less_one ? (stored + 1) & uint32_t(f.largest()) : stored);
}

std::string dims_text(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

SafetensorsFolder::Tensor require_tensor(const SafetensorsFolder& folder, const std::string& name,
                                         const std::vector<int64_t>& shape, std::vector<FileDType> types) {
  const SafetensorsFolder::Tensor* found = folder.find(name);
  if (found == nullptr)
    throw FileError(fmt::format("{}: {} {} is missing, beside the qweight of that matrix", folder.path().string(), name,
                                dims_text(shape)));
  if (found->entry->shape != shape)
    throw FileError(fmt::format("{}: {} is {}; by bits and group_size of config.json it is {}", folder.path().string(),
                                name, dims_text(found->entry->shape), dims_text(shape)));
  if (std::find(types.begin(), types.end(), found->entry->dtype) == types.end())
    throw FileError(fmt::format("{}: {} holds {}, and ought to hold {}", folder.path().string(), name,
                                name_of(found->entry->dtype), name_of(types[0])));
  return *found;
}

}  // namespace

bool is_gptq(const Json& quantization) {
  return quantization.is_object() && quantization.value("quant_method", Json()) == "gptq";
}

GptqFormat read_gptq_format(const Json& quantization, std::string_view source) {
  const JsonFields fields(quantization, std::string(source), std::string(kQuantisationKey) + ".");
  GptqFormat f;
  f.bits = int(fields.integer("bits", {.min = 1, .max = 64}));
  if (f.bits != 2 && f.bits != 4 && f.bits != 8) refuse_field(fields, "bits", kFullAdvice);
  const int64_t size = fields.integer("group_size", {.min = -1, .max = int64_t{1} << 31}, 128);
  if (size == 0) fields.fail("group_size", "columns that share a scale, or -1 for all of a row");
  f.group_size = std::max<int64_t>(size, 0);
  f.by_size = fields.flag("desc_act", false);
  const std::string stored = fields.string("checkpoint_format", "gptq");
  if (stored != "gptq" && stored != "gptq_v2")
    refuse_field(fields, "checkpoint_format", "weft reads \"gptq\" and \"gptq_v2\"");
  f.zeros_less_one = stored == "gptq";
  require_stored_so(fields);
  return f;
}

std::optional<GptqFormat> gptq_format_in(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  if (!is_there(file)) return {};
  const Json json = read_json_file(file, {.max_bytes = 4 << 20});
  const auto found = json.find(kQuantisationKey);
  if (!json.is_object() || found == json.end() || !is_gptq(*found)) return {};
  return read_gptq_format(*found, file.string());
}

Json gptq_to_json(const GptqFormat& f, const std::vector<std::string>& modules) {
  Json json{{"quant_method", "gptq"},
            {"bits", f.bits},
            {"group_size", f.group_size == 0 ? -1 : f.group_size},
            {"desc_act", f.by_size},
            {"sym", true},
            {"lm_head", false},
            {"true_sequential", false},
            {"checkpoint_format", f.zeros_less_one ? "gptq" : "gptq_v2"},
            {"pack_dtype", "int32"}};
  if (!modules.empty()) json["modules_in_block_to_quantize"] = Json::array({modules});
  return json;
}

std::vector<float> numbers_of(const GptqMatrix& m) {
  std::vector<float> numbers(m.codes.size());
  for (int64_t i = 0; i < m.rows; ++i)
    for (int64_t j = 0; j < m.cols; ++j) {
      const auto at = size_t(m.group_of[size_t(j)] * m.rows + i);
      numbers[size_t(i * m.cols + j)] =
          float(m.scales[at]) * float(int(m.codes[size_t(i * m.cols + j)]) - int(m.zeros[at]));
    }
  return numbers;
}

GptqTensorShapes gptq_shapes(const GptqFormat& f, int64_t rows, int64_t cols) {
  const int64_t groups = f.num_groups(cols);
  return {.codes = {cols / f.in_a_word(), rows},
          .zeros = {groups, rows / f.in_a_word()},
          .scales = {groups, rows},
          .group_of = {cols}};
}

std::vector<int32_t> packed_codes(const GptqFormat& f, const GptqMatrix& m) {
  std::vector<uint32_t> words(size_t(m.cols / f.in_a_word() * m.rows));
  for (int64_t i = 0; i < m.rows; ++i)
    for (int64_t j = 0; j < m.cols; ++j)
      words[size_t(j / f.in_a_word() * m.rows + i)] |= uint32_t(m.codes[size_t(i * m.cols + j)])
                                                       << (j % f.in_a_word() * f.bits);
  return {words.begin(), words.end()};
}

std::vector<int32_t> packed_zeros(const GptqFormat& f, const GptqMatrix& m) {
  const int64_t groups = int64_t(m.zeros.size()) / m.rows, words_of_group = m.rows / f.in_a_word();
  std::vector<uint32_t> words(size_t(groups * words_of_group));
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t i = 0; i < m.rows; ++i) {
      const uint32_t zero = uint32_t(m.zeros[size_t(g * m.rows + i)]) - (f.zeros_less_one ? 1 : 0);
      words[size_t(g * words_of_group + i / f.in_a_word())] |= (zero & uint32_t(f.largest()))
                                                               << (i % f.in_a_word() * f.bits);
    }
  return {words.begin(), words.end()};
}

std::optional<GptqTensors> GptqTensors::find(const SafetensorsFolder& folder, const GptqFormat& format,
                                             const std::string& name, int64_t rows, int64_t cols) {
  const std::string_view ending = ".weight";
  if (!name.ends_with(ending)) return {};
  const std::string module = name.substr(0, name.size() - ending.size());
  if (folder.find(module + ".qweight") == nullptr) return {};
  if (rows % format.in_a_word() != 0 || cols % format.in_a_word() != 0)
    throw FileError(
        fmt::format("{}: {}.qweight stands for a matrix [{}, {}]: weft reads codes of {} bits of sizes that "
                    "are multiples of {}",
                    folder.path().string(), module, rows, cols, format.bits, format.in_a_word()));
  const GptqTensorShapes shapes = gptq_shapes(format, rows, cols);
  const std::vector<FileDType> words{FileDType::i32, FileDType::u32};
  GptqTensors t;
  t.format_ = format;
  t.rows_ = rows, t.cols_ = cols;
  t.codes_ = require_tensor(folder, module + ".qweight", shapes.codes, words);
  t.zeros_ = require_tensor(folder, module + ".qzeros", shapes.zeros, words);
  t.scales_ =
      require_tensor(folder, module + ".scales", shapes.scales, {FileDType::f16, FileDType::bf16, FileDType::f32});
  if (folder.find(module + ".g_idx") != nullptr) {
    t.group_of_ = require_tensor(folder, module + ".g_idx", shapes.group_of, words);
    t.check_groups(folder);
  } else if (format.by_size) {
    throw FileError(
        fmt::format("{}: {}.g_idx is missing, which \"desc_act\": true asks for", folder.path().string(), module));
  }
  return t;
}

void GptqTensors::check_groups(const SafetensorsFolder& folder) const {
  const int64_t groups = format_.num_groups(cols_);
  const auto bytes = folder.bytes(*group_of_);
  for (int64_t j = 0; j < cols_; ++j)
    if (const auto g = number_at<int32_t>(bytes, j); g < 0 || g >= groups)
      throw FileError(fmt::format("{}: {} gives column {} the group {}, where there are {}", folder.path().string(),
                                  group_of_->name(), j, g, groups));
}

std::vector<const SafetensorsEntry*> GptqTensors::entries() const {
  std::vector<const SafetensorsEntry*> all{codes_.entry, zeros_.entry, scales_.entry};
  if (group_of_) all.push_back(group_of_->entry);
  return all;
}

// The scales and zero points of `count` rows from `row` on in group g.
GptqTensors::Group GptqTensors::group(const SafetensorsFolder& folder, int64_t g, int64_t row, int64_t count) const {
  Group group{std::vector<float>(size_t(count)), std::vector<int>(size_t(count))};
  read_matrix(folder.matrix(scales_), {g, row},
              {.data = group.scales.data(), .dtype = DType::f32, .rows = 1, .cols = count, .row_stride = count});
  const auto zeros = folder.bytes(zeros_);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t word = (g * rows_ + row + i) / format_.in_a_word();
    group.zeros[size_t(i)] = zero_of(code_in(number_at<uint32_t>(zeros, word), format_, row + i), format_);
  }
  return group;
}

// to [rows, cols] = w[start.row + i, start.col + j]
void GptqTensors::read_tile(const SafetensorsFolder& folder, BlockStart start, int64_t rows, int64_t cols,
                            float* to) const {
  const auto codes = folder.bytes(codes_);
  const auto groups = group_of_ ? folder.bytes(*group_of_) : std::span<const std::byte>();
  const int64_t consecutive = format_.group_size == 0 ? cols_ : format_.group_size;
  Group here;
  int64_t last = -1;
  for (int64_t j = 0; j < cols; ++j) {
    const int64_t col = start.col + j, word = col / format_.in_a_word() * rows_ + start.row;
    const int64_t g = groups.empty() ? col / consecutive : number_at<int32_t>(groups, col);
    if (g != last) here = group(folder, g, start.row, rows);
    last = g;
    for (int64_t i = 0; i < rows; ++i) {
      const auto code = int(code_in(number_at<uint32_t>(codes, word + i), format_, col));
      to[i * cols + j] = here.scales[size_t(i)] * float(code - here.zeros[size_t(i)]);
    }
  }
}

// Some rows at a time: their codes of a column lie together.
void GptqTensors::read(const SafetensorsFolder& folder, BlockStart start, const MatrixOut& to) const {
  constexpr int64_t kRows = 64;
  std::vector<float> tile(size_t(kRows * to.cols));
  for (int64_t first = 0; first < to.rows; first += kRows) {
    const int64_t count = std::min(kRows, to.rows - first);
    read_tile(folder, {start.row + first, start.col}, count, to.cols, tile.data());
    read_matrix({std::as_bytes(std::span(tile).first(size_t(count * to.cols))), FileDType::f32, count, to.cols}, {},
                {.data = static_cast<std::byte*>(to.data) + first * to.row_stride * size_of(to.dtype),
                 .dtype = to.dtype,
                 .rows = count,
                 .cols = to.cols,
                 .row_stride = to.row_stride});
  }
}

}  // namespace weft
