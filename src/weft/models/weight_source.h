// The weights of a model where they are stored: a Hugging Face folder, or a GGUF file.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "weft/checkpoint/convert.h"
#include "weft/models/hf_names.h"
#include "weft/models/model_spec.h"

namespace weft {

// Immutable; any thread may read.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // All tensors of the model, as hf_tensors orders them.
  virtual const std::vector<HfTensor>& tensors() const = 0;
  // to[i, j] = row start.row + i, column start.col + j of the part of the weight that tensors()[index] is, as weft has
  // it (see read_hf_rows). Throws FileError.
  virtual void read(size_t index, BlockStart start, const MatrixOut& to) const = 0;
  // Says that this tensor has been read, so that its part of the file need not stay in memory.
  virtual void forget(size_t index) const = 0;
  virtual std::vector<std::string> notes() const = 0;  // what was passed over, in words
  virtual void check_whole() const = 0;                // see MappedFile: to be called once numbers have been read
};

// `path`: a model's folder or a GGUF file. Throws FileError that names every tensor that is missing, of another shape
// or type, or that the model does not have.
std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& path, const ModelSpec& model);
// The same for the adapter's own tensors, in the file of one.
std::unique_ptr<WeightSource> open_adapter(const std::filesystem::path& file, const ModelSpec& model);

}  // namespace weft
