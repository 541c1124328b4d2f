#include "weft/ops/cpu/dequantise.h"

namespace weft::cpu {
namespace {

template <class T>
T rounded(float x) {
  return T(x);
}

// A block has 16 numbers: each is computed and rounded once, and elements choose among them.
template <class T>
void from_nf4(const Dequantise& op, Range range) {
  const CodedRectangle& at = op.at;
  const auto out = rows_of<T>(op.out);
  const float* scales = flat<float>(op.scales);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const uint8_t* codes = flat<uint8_t>(op.codes) + i * at.codes_of_row();
    const uint8_t* maxima = flat<uint8_t>(op.maxima) + at.first_maximum(i);
    const int64_t row = at.origin + i * at.stride, first = at.block_of(i, 0);
    T* const to = out[i];
    for (int64_t j = 0; j < at.cols;) {
      const int64_t block = at.block_of(i, j), end = std::min(at.cols, (block + 1) * kNf4Block - row);
      const float most =
          kLevelsWithSign[maxima[block - first]] * scales[1 + block / kCodeBlock - at.first_group()] + scales[0];
      T numbers[16];
      for (size_t k = 0; k < 16; ++k) numbers[k] = rounded<T>(kNf4Levels[k] * most);
      if (j % 2 == 1) to[j] = numbers[codes[j / 2] & 15], ++j;
      for (; j + 1 < end; j += 2) {
        const uint8_t both = codes[j / 2];
        to[j] = numbers[both >> 4], to[j + 1] = numbers[both & 15];
      }
      if (j < end) to[j] = numbers[codes[j / 2] >> 4], ++j;
    }
  }
}

template <class T>
void from_int8(const Dequantise& op, Range range) {
  const auto out = rows_of<T>(op.out);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const auto* codes = reinterpret_cast<const int8_t*>(flat<uint8_t>(op.codes) + i * op.at.cols);
    const float scale = flat<float>(op.scales)[i];
    for (int64_t j = 0; j < op.at.cols; ++j) out[i][j] = rounded<T>(float(codes[j]) * scale);
  }
}

}  // namespace

void dequantise(const Dequantise& op, Range rows) {
  with_type_of(op.out,
               [&]<class T>() { op.at.as == WeightCodes::int8 ? from_int8<T>(op, rows) : from_nf4<T>(op, rows); });
}

}  // namespace weft::cpu
