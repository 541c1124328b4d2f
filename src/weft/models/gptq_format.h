// How GPTQ folders keep a matrix in few bits: docs/formats/hugging_face.md
//   m rows (outputs)   n columns (inputs)   G groups of columns, which share a scale and a zero point of each row
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/checkpoint/safetensors.h"
#include "weft/tensor/dtype.h"

namespace weft {

struct GptqFormat {
  int bits = 4;                // of a number: 2, 4 or 8
  int64_t group_size = 128;    // columns; 0: all of a row
  bool by_size = false;        // "desc_act": groups are of columns in the order of how much their inputs weigh
  bool zeros_less_one = true;  // zero points are stored less by 1 ("gptq"), else as they are ("gptq_v2")

  int64_t num_groups(int64_t cols) const { return group_size == 0 ? 1 : (cols + group_size - 1) / group_size; }
  int in_a_word() const { return 32 / bits; }
  int largest() const { return (1 << bits) - 1; }
  bool operator==(const GptqFormat&) const = default;
};

inline constexpr const char* kQuantisationKey = "quantization_config";

// Of the "quantization_config" of a config.json, whose quant_method is "gptq". `source` begins every message. Throws
// FileError or ConfigError, naming the field and its value, where it asks for something that weft does not read.
GptqFormat read_gptq_format(const nlohmann::json& quantization, std::string_view source);
bool is_gptq(const nlohmann::json& quantization);
// Of the config.json in a folder; none: its matrices are as they are, or there is no such file.
std::optional<GptqFormat> gptq_format_in(const std::filesystem::path& folder);
// The same as it is written. `modules`: within a block, of the matrices in few bits; none: all.
nlohmann::json gptq_to_json(const GptqFormat& format, const std::vector<std::string>& modules);

// A matrix in few bits: w[i, j] = scales[g(j), i] * (codes[i, j] - zeros[g(j), i]), exact in f32.
struct GptqMatrix {
  int64_t rows = 0, cols = 0;
  std::vector<uint8_t> codes;     // [m, n]
  std::vector<f16> scales;        // [G, m]
  std::vector<uint8_t> zeros;     // [G, m]
  std::vector<int32_t> group_of;  // [n]
};
std::vector<float> numbers_of(const GptqMatrix& matrix);  // [m, n]

// The four tensors of a matrix "X.weight" on disk: X.qweight [n bits / 32, m] i32, with the codes of 32 / bits
// consecutive columns in a number, the first in its lowest bits; X.qzeros [G, m bits / 32] i32, likewise of consecutive
// rows; X.scales [G, m] f16; X.g_idx [n] i32, the group of each column. Whole numbers alone: n and m are multiples of
// 32 / bits.
struct GptqTensorShapes {
  std::vector<int64_t> codes, zeros, scales, group_of;
};
GptqTensorShapes gptq_shapes(const GptqFormat& format, int64_t rows, int64_t cols);
std::vector<int32_t> packed_codes(const GptqFormat& format, const GptqMatrix& matrix);
std::vector<int32_t> packed_zeros(const GptqFormat& format, const GptqMatrix& matrix);

// These tensors in a folder.
class GptqTensors {
 public:
  // Of the matrix `name` ("X.weight") of m rows and n columns. None: the folder has no X.qweight. Throws FileError
  // where a tensor is missing, of another shape or type than the format asks for, or has a group that is not there.
  static std::optional<GptqTensors> find(const SafetensorsFolder& folder, const GptqFormat& format,
                                         const std::string& name, int64_t rows, int64_t cols);
  std::vector<const SafetensorsEntry*> entries() const;
  const SafetensorsFolder::Tensor& codes() const { return codes_; }
  // to[i, j] = w[start.row + i, start.col + j].
  void read(const SafetensorsFolder& folder, BlockStart start, const MatrixOut& to) const;

 private:
  GptqTensors() = default;
  void check_groups(const SafetensorsFolder& folder) const;
  struct Group {
    std::vector<float> scales;
    std::vector<int> zeros;
  };
  Group group(const SafetensorsFolder& folder, int64_t g, int64_t row, int64_t count) const;
  void read_tile(const SafetensorsFolder& folder, BlockStart start, int64_t rows, int64_t cols, float* to) const;
  GptqFormat format_;
  int64_t rows_ = 0, cols_ = 0;
  SafetensorsFolder::Tensor codes_, zeros_, scales_;
  std::optional<SafetensorsFolder::Tensor> group_of_;  // none: consecutive columns
};

}  // namespace weft
