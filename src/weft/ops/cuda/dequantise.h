// Kernels: numbers of frozen matrices that are kept in codes.
#pragma once
#include "weft/ops/cuda/elements.h"
#include "weft/ops/ops.h"

namespace weft::gpu {

struct FromInt8 {
  const uint8_t* codes;
  const float* scales;
  int64_t cols;
  WEFT_GPU float operator()(int64_t i, int64_t j) const { return float(int8_t(codes[i * cols + j])) * scales[i]; }
};

struct FromNf4 {
  const uint8_t *codes, *maxima;
  const float* scales;
  CodedRectangle at;
  int64_t first_group;
  float levels[16], map[kCodes];
  explicit FromNf4(const Dequantise& op)
      : codes(flat<uint8_t>(op.codes)),
        maxima(flat<uint8_t>(op.maxima)),
        scales(flat<float>(op.scales)),
        at(op.at),
        first_group(op.at.first_group()) {
    for (size_t i = 0; i < 16; ++i) levels[i] = kNf4Levels[i];
    for (size_t i = 0; i < kCodes; ++i) map[i] = kLevelsWithSign[i];
  }
  WEFT_GPU float operator()(int64_t i, int64_t j) const {
    const int64_t block = at.block_of(i, j);
    const uint8_t both = codes[i * at.codes_of_row() + j / 2],
                  maximum = maxima[at.first_maximum(i) + block - at.block_of(i, 0)];
    const float most = map[maximum] * scales[1 + block / kCodeBlock - first_group] + scales[0];
    return levels[j % 2 == 0 ? both >> 4 : both & 15] * most;
  }
};

}  // namespace weft::gpu
