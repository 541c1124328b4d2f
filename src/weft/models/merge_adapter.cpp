#include "weft/models/merge_adapter.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/parallel.h"
#include "weft/base/threads.h"
#include "weft/checkpoint/safetensors.h"
#include "weft/checkpoint/shared_writer.h"
#include "weft/models/hf_names.h"
#include "weft/models/peft.h"

namespace weft {
namespace {

struct Matrix {
  std::vector<float> values;
  int64_t rows, cols;
};

Matrix read_whole(const FoundHfTensor& found, const SafetensorsFolder& files) {
  Matrix m{std::vector<float>(size_t(found.tensor.rows * found.tensor.cols())), found.tensor.rows, found.tensor.cols()};
  read_hf_rows(found, files, {},
               {.data = m.values.data(), .dtype = DType::f32, .rows = m.rows, .cols = m.cols, .row_stride = m.cols});
  return m;
}

// w += scale b a
void add_product(Matrix& w, double scale, const Matrix& b, const Matrix& a) {
  parallel_for(w.rows, usable_cores(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < w.cols; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < a.rows; ++k)
          sum += double(b.values[size_t(i * b.cols + k)]) * double(a.values[size_t(k * a.cols + j)]);
        float& to = w.values[size_t(i * w.cols + j)];
        to = float(double(to) + scale * sum);
      }
  });
}

void require_finite(const Matrix& w, const std::string& name, const std::filesystem::path& adapter) {
  if (!std::all_of(w.values.begin(), w.values.end(), [](float x) { return std::isfinite(x); }))
    throw FileError(
        fmt::format("{}: with this adapter {} has numbers that are not finite: there is nothing to merge; is its "
                    "\"lora_alpha\" right?",
                    adapter.string(), name));
}

FileDType in_file(DType dtype) { return dtype == DType::bf16 ? FileDType::bf16 : FileDType::f32; }

}  // namespace

DType merged_dtype(const std::filesystem::path& base) {
  const SafetensorsFolder files = SafetensorsFolder::open(base);
  const bool all = std::all_of(files.tensors().begin(), files.tensors().end(), [](const auto& tensor) {
    return tensor.entry->dtype == FileDType::bf16 &&
           (tensor.entry->end - tensor.entry->begin) % 4 == 0;  // SharedWriter
  });
  return all ? DType::bf16 : DType::f32;
}

void write_merged(const std::filesystem::path& adapter, const HfConfig& config, const SafetensorsLayout& layout,
                  DType dtype, const std::filesystem::path& out) {
  const SafetensorsFolder base = SafetensorsFolder::open(base_of_adapter(adapter, *config.adapter));
  const SafetensorsFolder file = SafetensorsFolder::of_file(adapter / kAdapterFile);
  const HfMatch model = match_hf_tensors(config.spec, base), matrices = match_adapter_tensors(config.spec, file);
  const AdapterSpec& spec = *config.spec.adapter;
  SharedWriter writer(out, layout);
  for (const FoundHfTensor& found : model.tensors) {
    const HfTensor& t = found.tensor;
    Matrix w = read_whole(found, base);
    for (size_t i = 0; i < spec.targets.size(); ++i) {
      if (spec.targets[i].module + ".weight" != t.name) continue;
      add_product(w, spec.scale, read_whole(matrices.tensors[2 * i + 1], file),
                  read_whole(matrices.tensors[2 * i], file));
      require_finite(w, t.name, adapter);
    }
    int64_t at = t.slice * w.rows * w.cols * (bits_of(in_file(dtype)) / 8);
    stream_matrix({.data = w.values.data(), .dtype = DType::f32, .rows = w.rows, .cols = w.cols, .row_stride = w.cols},
                  in_file(dtype), t.transposed, [&](std::span<const std::byte> bytes) {
                    writer.write(t.name, at, bytes);
                    at += int64_t(bytes.size());
                  });
  }
  writer.sync();
  base.check_whole();
  file.check_whole();
}

}  // namespace weft
