// A Hugging Face folder of a model, written from another form of it: in one type of numbers, or with the matrices of
// its blocks in few bits (GPTQ).
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "weft/checkpoint/shared_writer.h"
#include "weft/models/gptq_format.h"
#include "weft/models/hf_config.h"
#include "weft/models/weight_source.h"

namespace weft {

// All tensors in `type`: bf16, f16 or f32. One whose rows have an odd number of numbers is in f32.
SafetensorsLayout layout_in(const std::vector<HfTensor>& tensors, FileDType type);
// Writes one of the source's tensors in the type that the layout gave it; about a million numbers, or a tensor that is
// turned or stacked on disk, are in memory at a time. Its name there is `as`; empty: the same. Throws FileError where
// the type cannot hold a number.
void copy_tensor(const WeightSource& source, size_t index, FileDType type, SharedWriter& writer,
                 const std::string& as = {});

class GptqFolder {
 public:
  // In codes are the matrices of blocks, but those of routers and those with a side that is no multiple of 32 with
  // all that have the same input (q, k and v; gate and up), as the programs that read such folders want it; all else is
  // in f16. Throws ConfigError, naming --group-size where that is to blame, where the model cannot be written so.
  GptqFolder(const HfConfig& config, const GptqFormat& format);

  const GptqFormat& format() const { return format_; }
  const std::vector<HfTensor>& tensors() const { return tensors_; }  // as hf_tensors orders them
  bool in_codes(size_t tensor) const { return in_codes_[tensor]; }
  int64_t num_in_codes() const;
  std::vector<std::string> notes() const;  // which matrices stay, in words

  SafetensorsLayout layout() const;
  nlohmann::json config() const;  // the config.json beside it
  void write(size_t tensor, const GptqMatrix& matrix, SharedWriter& writer) const;

 private:
  void require_groups() const;
  std::vector<std::string> modules() const;
  const HfConfig& config_;
  const GptqFormat format_;
  const std::vector<HfTensor> tensors_;
  std::vector<bool> in_codes_;
};
inline constexpr FileDType kBesideCodes = FileDType::f16;

}  // namespace weft
