// Kernels: numbers of frozen matrices that are kept in codes.
#pragma once
#include "weft/ops/cuda/pointwise.h"
#include "weft/ops/ops.h"

namespace weft::gpu {

struct FromInt8 {
  const uint8_t* codes;
  const float* scales;
  int64_t cols;
  WEFT_GPU float operator()(int64_t i, int64_t j) const { return float(int8_t(codes[i * cols + j])) * scales[i]; }
};

// A block for a run of packs of N.
template <class T, int N>
struct Nf4Numbers {
  static constexpr int kLevels = 16;
  Rows<T> out;
  const uint8_t *codes, *maxima;
  const float* scales;
  CodedRectangle at;
  int64_t first_group;
  PackPlaces places;
  float table[kLevels + kCodes];  // levels of elements, then those of maxima
  explicit Nf4Numbers(const Dequantise& op)
      : out(rows<T>(op.out)),
        codes(flat<uint8_t>(op.codes)),
        maxima(flat<uint8_t>(op.maxima)),
        scales(flat<float>(op.scales)),
        at(op.at),
        first_group(op.at.first_group()),
        places(packs_of(op.out.rows(), op.out.cols() / N)) {
    for (size_t i = 0; i < kLevels; ++i) table[i] = kNf4Levels[i];
    for (size_t i = 0; i < kCodes; ++i) table[kLevels + i] = kLevelsWithSign[i];
  }
  template <class Block>
  WEFT_GPU void operator()(const Block& block) const {
    static_assert(kLevels + kCodes <= kNumbers);
    float* const levels = block.numbers();  // answers all threads at once, whichever level each of them asks for
    block.each(kLevels + kCodes, [&](int64_t i) { levels[i] = table[i]; });
    places.map(
        block, [&](PackPlaces::Place p) { return numbers(levels, p.row, p.pack * N); },
        [&](PackPlaces::Place p, const Pack<N>& x) { store_pack(out[p.row] + p.pack * N, x); });
  }

 private:
  WEFT_GPU Pack<N> numbers(const float* levels, int64_t i, int64_t j) const {
    const uint8_t* const of_row = codes + i * at.codes_of_row();
    const int64_t to_maximum = at.first_maximum(i) - at.block_of(i, 0);
    int64_t now = -1;
    float most = 0;
    Pack<N> all;
    WEFT_UNROLL
    for (int u = 0; u < N; ++u) {
      const int64_t block = at.block_of(i, j + u);
      if (block != now) {
        now = block;
        most = levels[kLevels + maxima[to_maximum + block]] * scales[1 + block / kCodeBlock - first_group] + scales[0];
      }
      const uint8_t both = of_row[(j + u) / 2];
      all.v[u] = levels[(j + u) % 2 == 0 ? both >> 4 : both & 15] * most;
    }
    return all;
  }
};

}  // namespace weft::gpu
