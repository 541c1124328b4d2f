#include "weft/models/merge_adapter.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/parallel.h"
#include "weft/base/threads.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/checkpoint/shared_writer.h"
#include "weft/gguf/gguf_file.h"
#include "weft/models/fingerprint.h"
#include "weft/models/hf_names.h"
#include "weft/models/peft.h"
#include "weft/models/transformer.h"
#include "weft/models/weight_source.h"
#include "weft/nn/embedding.h"
#include "weft/sharding/quantise.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

struct Matrix {
  std::vector<float> values;
  int64_t rows = 0, cols = 0;
};

Matrix read_whole(const FoundHfTensor& found, const SafetensorsFolder& files) {
  Matrix m{std::vector<float>(size_t(found.tensor.rows * found.tensor.cols())), found.tensor.rows, found.tensor.cols()};
  read_hf_rows(found, files, {},
               {.data = m.values.data(), .dtype = DType::f32, .rows = m.rows, .cols = m.cols, .row_stride = m.cols});
  return m;
}

Matrix turned(const Matrix& m) {
  Matrix t{std::vector<float>(m.values.size()), m.cols, m.rows};
  for (int64_t i = 0; i < t.rows; ++i)
    for (int64_t j = 0; j < t.cols; ++j) t.values[size_t(i * t.cols + j)] = m.values[size_t(j * m.cols + i)];
  return t;
}

struct Matrices {  // of one target
  Matrix a, b, m;  // m: magnitudes, or of no rows
  double scale = 1;
};

// What these matrices add to row i, column j.
double added(const Matrices& with, int64_t i, int64_t j) {
  const Matrix &a = with.a, &b = with.b;
  double sum = 0;
  for (int64_t k = 0; k < a.rows; ++k)
    sum += double(b.values[size_t(i * b.cols + k)]) * double(a.values[size_t(k * a.cols + j)]);
  return with.scale * sum;
}

// Row i of w + scale b a of each, with a length of m[i] where there are magnitudes (of one alone).
void merge_row(Matrix& w, int64_t i, const std::vector<Matrices>& all) {
  std::vector<double> row(size_t(w.cols));
  double squares = 0;
  for (int64_t j = 0; j < w.cols; ++j) {
    double x = double(w.values[size_t(i * w.cols + j)]);
    for (const Matrices& with : all) x += added(with, i, j);
    row[size_t(j)] = x;
    squares += x * x;
  }
  const Matrix& m = all[0].m;
  const double factor = m.rows > 0 ? double(m.values[size_t(i)]) / std::sqrt(squares) : 1;
  for (int64_t j = 0; j < w.cols; ++j) w.values[size_t(i * w.cols + j)] = float(factor * row[size_t(j)]);
}

void require_finite(const Matrix& w, const std::string& name, const std::filesystem::path& adapter) {
  if (!std::all_of(w.values.begin(), w.values.end(), [](float x) { return std::isfinite(x); }))
    throw FileError(
        fmt::format("{}: with this adapter {} has numbers that are not finite: there is nothing to merge; is its "
                    "\"lora_alpha\" right, and no row of the base zeros?",
                    adapter.string(), name));
}

// The parts, runs of rows, of the weights that were kept in codes beside the adapter.
std::map<std::string, std::vector<Run>> parts_in_codes(const ModelSpec& model) {
  std::map<std::string, std::vector<Run>> all;
  for (const ParamSpec& weight : all_params(model)) {
    if (!weight.in_codes()) continue;
    for (const HeldPart& part : held_parts(weight, {})) all[weight.name].push_back(part.part_rows);
  }
  return all;
}

// What the adapter was trained beside: the numbers that the codes of `w` stand for.
void round_parts(Matrix& w, const HfTensor& t, const AdapterSpec& adapter, const std::vector<Run>& parts) {
  for (const Run& part : parts) {
    if (part.first < t.first_row || part.end() > t.first_row + t.rows) continue;
    round_to_codes(
        adapter.base_codes, t.name, w.cols,
        std::span(w.values).subspan(size_t((part.first - t.first_row) * w.cols), size_t(part.count * w.cols)),
        usable_cores());
  }
}

FileDType in_file(DType dtype) { return dtype == DType::bf16 ? FileDType::bf16 : FileDType::f32; }

constexpr std::string_view kScore = "score.weight";  // in files and here

// The tensors of one adapter.
class AdapterFile {
 public:
  explicit AdapterFile(const AdapterToMerge& adapter)
      : spec_(*adapter.config.spec.adapter),
        weight_(adapter.weight),
        file_(SafetensorsFolder::of_file(adapter.folder / kAdapterFile)),
        found_(match_adapter_tensors(adapter.config.spec, file_)) {
    for (size_t i = 0; i < spec_.targets.size(); ++i) targets_[spec_.targets[i].module + ".weight"] = i;
  }
  // Those of the target that a tensor of the base is; none: it is no target.
  std::optional<Matrices> matrices_of(const std::string& tensor) const {
    const auto target = targets_.find(tensor);
    if (target == targets_.end()) return {};
    const size_t first = target->second * (spec_.magnitudes ? 3 : 2);  // in the order of adapter_tensors
    const double scale = weight_ * spec_.scale;
    if (spec_.targets[target->second].weight == Embedding::kTable)  // a row of the table is B times one of A
      return Matrices{turned(matrix(first + 1)), matrix(first), {}, scale};
    return Matrices{matrix(first), matrix(first + 1), spec_.magnitudes ? matrix(first + 2) : Matrix{}, scale};
  }
  Matrix score() const { return matrix(found_.tensors.size() - 1); }
  void check_whole() const { file_.check_whole(); }

 private:
  Matrix matrix(size_t i) const { return read_whole(found_.tensors[i], file_); }
  const AdapterSpec& spec_;
  const double weight_;
  const SafetensorsFolder file_;
  const HfMatch found_;  // points into the file
  std::map<std::string, size_t> targets_;
};

void write_matrix(SharedWriter& writer, const HfTensor& t, const Matrix& w, DType dtype) {
  int64_t at = t.slice * w.rows * w.cols * (bits_of(in_file(dtype)) / 8);
  stream_matrix({.data = w.values.data(), .dtype = DType::f32, .rows = w.rows, .cols = w.cols, .row_stride = w.cols},
                in_file(dtype), t.transposed, [&](std::span<const std::byte> bytes) {
                  writer.write(t.name, at, bytes);
                  at += int64_t(bytes.size());
                });
}

}  // namespace

DType merged_dtype(const std::filesystem::path& base) {
  if (is_gguf(base)) return DType::f32;
  const SafetensorsFolder files = SafetensorsFolder::open(base);
  const bool all = std::all_of(files.tensors().begin(), files.tensors().end(), [](const auto& tensor) {
    return tensor.entry->dtype == FileDType::bf16 &&
           (tensor.entry->end - tensor.entry->begin) % 4 == 0;  // SharedWriter
  });
  return all ? DType::bf16 : DType::f32;
}

void require_mergeable(const std::vector<AdapterToMerge>& adapters) {
  const AdapterToMerge& first = adapters[0];
  if (adapters.size() == 1 && first.weight == 1) return;
  const fs::path base = base_of_adapter(first.folder, *first.config.adapter);
  for (const AdapterToMerge& a : adapters) {
    const auto refuse = [&](const std::string& why) {
      throw ConfigError(fmt::format("{}: {}", a.folder.string(), why));
    };
    const AdapterSpec& spec = *a.config.spec.adapter;
    if (spec.magnitudes)
      refuse("its rows have lengths of their own (DoRA), which cannot be weighed or added to others; merge it alone");
    if (spec.trains_score)
      refuse("it has a score of its own (a reward model), which cannot be weighed or added to others; merge it alone");
    if (spec.base_codes != first.config.spec.adapter->base_codes)
      refuse(
          fmt::format("it was trained beside a base that was kept otherwise (in codes, or not) than that of {}: merge "
                      "each alone",
                      first.folder.string()));
    const fs::path other = base_of_adapter(a.folder, *a.config.adapter);
    if (!fs::equivalent(base, other) && fingerprint_of_weights(base) != fingerprint_of_weights(other))
      refuse(fmt::format("its base {} is not that of {}, {}: adapters of one base can be merged", other.string(),
                         first.folder.string(), base.string()));
  }
}

void write_merged(const std::vector<AdapterToMerge>& adapters, const SafetensorsLayout& layout, DType dtype,
                  const std::filesystem::path& out) {
  const AdapterToMerge& first = adapters[0];
  const auto base = open_weights(base_of_adapter(first.folder, *first.config.adapter), first.config.spec);
  const std::vector<AdapterFile> files(adapters.begin(), adapters.end());
  const AdapterSpec& spec = *first.config.spec.adapter;
  const auto in_codes = parts_in_codes(first.config.spec);
  SharedWriter writer(out, layout);
  for (size_t tensor = 0; tensor < base->tensors().size(); ++tensor) {
    const HfTensor& t = base->tensors()[tensor];
    Matrix w{std::vector<float>(size_t(t.rows * t.cols())), t.rows, t.cols()};
    base->read(tensor, {},
               {.data = w.values.data(), .dtype = DType::f32, .rows = w.rows, .cols = w.cols, .row_stride = w.cols});
    if (const auto parts = in_codes.find(t.param); parts != in_codes.end()) round_parts(w, t, spec, parts->second);
    std::vector<Matrices> all;
    for (const AdapterFile& file : files)
      if (auto matrices = file.matrices_of(t.name)) all.push_back(std::move(*matrices));
    if (!all.empty()) {
      parallel_for(w.rows, usable_cores(), 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) merge_row(w, row, all);
      });
      require_finite(w, t.name, first.folder);
    }
    if (spec.trains_score && t.param == kScore) continue;  // the adapter has another
    write_matrix(writer, t, w, dtype);
  }
  if (spec.trains_score) {
    const Matrix score = files[0].score();
    require_finite(score, std::string(kScore), first.folder);
    write_matrix(writer,
                 {.name = std::string(kScore), .shape = {1, score.cols}, .param = std::string(kScore), .rows = 1},
                 score, dtype);
  }
  writer.sync();
  base->check_whole();
  for (const AdapterFile& file : files) file.check_whole();
}

}  // namespace weft
