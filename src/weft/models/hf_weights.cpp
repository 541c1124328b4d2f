#include "weft/models/hf_weights.h"

#include <map>

#include "weft/checkpoint/safetensors_writer.h"
#include "weft/models/hf_names.h"

namespace weft {
namespace {

std::map<std::string, const Param*> by_name(const ParamStore& params) {
  std::map<std::string, const Param*> names;
  for (const Param* p : params.params()) names[p->spec().name] = p;
  return names;
}

// The rows of the masters that are this tensor.
Tensor rows_of(const HfTensor& tensor, const ParamStore& params, const std::map<std::string, const Param*>& names) {
  const auto found = names.find(tensor.param);
  WEFT_CHECK(found != names.end(), "{} is part of {}, which this model does not have", tensor.name, tensor.param);
  return params.master(*found->second).slice_rows(tensor.first_row, tensor.rows);
}

}  // namespace

std::vector<std::string> load_hf_weights(const std::filesystem::path& folder, const ModelSpec& model,
                                         const ParamStore& params) {
  const SafetensorsFolder files = SafetensorsFolder::open(folder);
  const HfMatch match = match_hf_tensors(model, files);
  const auto names = by_name(params);
  for (const FoundHfTensor& found : match.tensors) {
    const Tensor to = rows_of(found.tensor, params, names);
    read_hf_rows(
        found, files, {},
        {.data = to.data, .dtype = to.dtype, .rows = to.rows(), .cols = to.cols(), .row_stride = to.row_stride});
  }
  return match.notes;
}

void save_hf_weights(const std::filesystem::path& folder, const ModelSpec& model, const ParamStore& params) {
  const auto names = by_name(params);
  std::vector<TensorToWrite> tensors;
  for (const HfTensor& t : hf_tensors(model)) {
    const Tensor from = rows_of(t, params, names);
    const FileDType dtype = from.dtype == DType::f64 ? FileDType::f64 : FileDType::f32;
    const MatrixIn matrix{.data = from.data,
                          .dtype = from.dtype,
                          .rows = from.rows(),
                          .cols = from.cols(),
                          .row_stride = from.row_stride};
    tensors.push_back({.name = t.name,
                       .dtype = dtype,
                       .shape = t.shape,
                       .data = [=, transposed = t.transposed](const ByteSink& sink) {
                         stream_matrix(matrix, dtype, transposed, sink);
                       }});
  }
  write_safetensors_folder(folder, std::move(tensors));
}

}  // namespace weft
