// The tensors of a Hugging Face model folder, and which part of which weight of weft each of them is.
//   docs/formats/hugging_face.md has the table.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "weft/checkpoint/safetensors.h"
#include "weft/models/gptq_format.h"
#include "weft/models/model_spec.h"

namespace weft {

// One tensor on disk: rows [first_row, first_row + rows) of the weight `param`, which is row-major [out, in] (a bias or
// the weight of a norm is [out, 1]). Together they cover every weight of the model once. A tensor that stacks the
// matrices of experts is as many of these, one for each slice of its first dimension.
struct HfTensor {
  std::string name;
  std::vector<int64_t> shape;
  bool transposed = false;  // on disk the matrix is [in, out] (GPT-2)
  std::string param;
  int64_t first_row = 0, rows = 0;
  int64_t slice = 0, slices = 1;  // which of how many

  int64_t cols() const;  // of the weight
};

// All tensors of the model, in the order of its layers: as weft writes them.
std::vector<HfTensor> hf_tensors(const ModelSpec& model);

// The same of the model's adapter, which it has: as PEFT names them. Behind A and B of each target (and its magnitudes)
// comes the score of a reward model, or what gives values for PPO, where it learns beside them.
std::vector<HfTensor> adapter_tensors(const ModelSpec& model);
// Those of the weights that learn: of the adapter, where there is one.
std::vector<HfTensor> trained_tensors(const ModelSpec& model);
// Names of these that another model does not train.
std::vector<std::string> trained_only_in(const ModelSpec& model, const ModelSpec& other);

// A tensor of the model, found in a folder (perhaps under a shorter name, as older files have it).
struct FoundHfTensor {
  HfTensor tensor;
  SafetensorsFolder::Tensor source;       // points into the folder
  std::optional<GptqTensors> codes = {};  // a matrix that is in codes there, of which `source` is the first
};

struct HfMatch {
  std::vector<FoundHfTensor> tensors;  // as hf_tensors orders them
  std::vector<std::string> notes;      // what was passed over, in words
};

// Finds every tensor of `model`. Names may lack their first part ("transformer." or "model."). Passed over: buffers
// that older files hold (attention masks, inverse frequencies), and the head of a model whose config ties it to the
// embedding, if it is equal to it. Where config.json says so, a matrix may be in codes (gptq_format.h). Throws
// FileError that names every tensor that is missing, of another shape, of a type without conversion, or that the model
// does not have; or a tensor of codes that is wrong. Looks at numbers of that head and of groups of codes alone.
HfMatch match_hf_tensors(const ModelSpec& model, const SafetensorsFolder& folder);

// Finds every tensor of the model's adapter in the file of one. Throws FileError as above.
HfMatch match_adapter_tensors(const ModelSpec& model, const SafetensorsFolder& file);

// to[i, j] = row start.row + i, column start.col + j of this tensor's part of the weight (its row 0 is the weight's row
// first_row); transposes where the file does.
void read_hf_rows(const FoundHfTensor& found, const SafetensorsFolder& folder, BlockStart start, const MatrixOut& to);

}  // namespace weft
