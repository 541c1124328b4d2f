// Frozen matrices that are kept in codes, and the op that makes numbers of them. Included by ops.h.
#pragma once
#include "weft/ops/blockwise_ops.h"

namespace weft {

// How a frozen matrix is kept.
//   nf4   4 bits an element: one of 16 levels, times the largest absolute value of its block of 64 elements.
//         These maxima are codes too, in blocks of 256 (double quantisation).     Dettmers et al. 2023, "QLoRA"
//   int8  8 bits an element: an integer of [-127, 127], times a scale of its row.  Dettmers et al. 2022, "LLM.int8()"
enum class WeightCodes : uint8_t { none, nf4, int8 };
constexpr std::string_view name_of(WeightCodes codes) {
  constexpr std::string_view kNames[] = {"none", "nf4", "int8"};
  return kNames[size_t(codes)];
}

inline constexpr int64_t kNf4Block = 64;
// Ascending. Quantiles of the normal distribution, with a 0 (QLoRA, appendix E).
inline constexpr std::array<float, 16> kNf4Levels = {-1.0f,
                                                     -0.6961928009986877f,
                                                     -0.5250730514526367f,
                                                     -0.39491748809814453f,
                                                     -0.28444138169288635f,
                                                     -0.18477343022823334f,
                                                     -0.09105003625154495f,
                                                     0.0f,
                                                     0.07958029955625534f,
                                                     0.16093020141124725f,
                                                     0.24611230194568634f,
                                                     0.33791524171829224f,
                                                     0.44070982933044434f,
                                                     0.5626170039176941f,
                                                     0.7229568362236023f,
                                                     1.0f};

// A rectangle of a matrix, in codes. Blocks are of the whole matrix, row by row, so any cut of it has the same codes.
struct CodedRectangle {
  WeightCodes as = WeightCodes::nf4;
  int64_t rows = 0, cols = 0;  // here
  int64_t origin = 0;          // the number, in the whole matrix, of the first element here
  int64_t stride = 1;          // elements of a row of the whole matrix

  // Bytes: a row begins with a byte of its own. Of nf4, the upper four bits of a byte are of an even column.
  constexpr int64_t codes_of_row() const { return as == WeightCodes::nf4 ? (cols + 1) / 2 : cols; }
  constexpr int64_t num_codes() const { return rows * codes_of_row(); }

  // Codes of block maxima, in nf4 alone. Whole rows have one for each block, from the first to the last; rows that are
  // cut have as many each as a row may touch.
  constexpr int64_t block_of(int64_t row, int64_t col) const { return (origin + row * stride + col) / kNf4Block; }
  constexpr bool has_whole_rows() const { return cols == stride; }
  constexpr int64_t first_maximum(int64_t row) const {
    return has_whole_rows() ? block_of(row, 0) - block_of(0, 0) : row * most_blocks_of_row();
  }
  constexpr int64_t num_maxima() const {
    if (as != WeightCodes::nf4 || rows * cols == 0) return 0;
    return has_whole_rows() ? block_of(rows - 1, cols - 1) - block_of(0, 0) + 1 : rows * most_blocks_of_row();
  }
  // The code of row i's maximum for column j is number first_maximum(i) + block_of(i, j) - block_of(i, 0).
  // Scales. nf4 has the mean of all maxima of the matrix, then the largest distance from it in each block of kCodeBlock
  // maxima; int8 has, for each row, what its integers are multiplied with.
  constexpr int64_t first_group() const { return block_of(0, 0) / kCodeBlock; }
  constexpr int64_t num_scales() const {
    if (rows * cols == 0) return 0;
    return as == WeightCodes::int8 ? rows : 2 + block_of(rows - 1, cols - 1) / kCodeBlock - first_group();
  }
  bool operator==(const CodedRectangle&) const = default;

 private:
  constexpr int64_t most_blocks_of_row() const { return (cols + kNf4Block - 2) / kNf4Block + 1; }
};

// out = the numbers that codes stand for.     out [rows, cols] compute
//   nf4   level[code] (map[maximum] scales[1 + its group] + scales[0]), map being kLevelsWithSign
//         codes u8 [num_codes]   maxima u8 [num_maxima]   scales [num_scales] stat
//   int8  code scales[row], codes being signed; no maxima
struct Dequantise {
  static constexpr std::string_view kName = "dequantise";
  Tensor codes, maxima, scales, out;
  CodedRectangle at = {};
  auto fields() const {
    return std::array{Field{"codes", &codes, Role::in}, Field{"maxima", &maxima, Role::in},
                      Field{"scales", &scales, Role::in}, Field{"out", &out, Role::out}};
  }
  bool operator==(const Dequantise&) const = default;
};

// The number of row i, column j.  T: of scales, float or wider
template <class T>
struct CodedNumbers {
  const uint8_t *codes, *maxima;
  const T* scales;
  CodedRectangle at;
  T operator()(int64_t i, int64_t j) const {
    if (at.as == WeightCodes::int8) return T(float(int8_t(codes[i * at.codes_of_row() + j]))) * scales[i];
    const int64_t block = at.block_of(i, j);
    const uint8_t both = codes[i * at.codes_of_row() + j / 2],
                  maximum = maxima[at.first_maximum(i) + block - at.block_of(i, 0)];
    const T most = T(kLevelsWithSign[maximum]) * scales[1 + block / kCodeBlock - at.first_group()] + scales[0];
    return T(kNf4Levels[size_t(j % 2 == 0 ? both >> 4 : both & 15)]) * most;
  }
};

}  // namespace weft
