// The inner parts of an f32 matrix product, compiled for each kind of CPU; the best for this one is chosen at run time.
//   mr, nr  rows and columns of a tile of out that is held in registers       kc  length of a block of k
#pragma once
#include <cstdint>

namespace weft {

// Longest block of k. A packed panel of a (mr rows) then fits the L1 cache, one of b (nr columns) a part of the L2.
inline constexpr int64_t kMaxKc = 384;
// Floats from row to row of a panel of a packed by rows: an odd number of cache lines, so that rows do not share sets.
inline constexpr int64_t kPanelStride = kMaxKc + 16;

// Memory to bring into the cache while tiles are computed: so many lines of 64 bytes from each of a run of rows.
struct Prefetch {
  const char* at = nullptr;
  int64_t line = 0, lines_per_row = 0, row_bytes = 0;
  int64_t lines_left = 0;
};

// c[i, j] = start[i, j] + sum over p < kc of a[i, p] b[p, j], summed in the order of p;
// start is c itself, the bias, or zero. Element (i, j) of c lies at c[i * c_stride + j], turned at c[j * c_stride + i].
struct Tile {
  const float* a;  // packed
  const float* b;  // packed
  float* c;
  int64_t c_stride, kc;
  int rows, cols;  // 1..mr, 1..nr
  bool add_to_c;
  const float* bias;  // [cols], turned [rows]; or null
  bool turned;
  Prefetch* prefetch;
  int64_t prefetch_lines;  // of *prefetch, during this tile; at most kc / 4 are
};

struct F32Kernels {
  const char* target;  // Highway's name of the kind of CPU that they are compiled for: "AVX3" is AVX-512
  int mr, nr;
  // Packs a[rows, kc], rows <= mr, whose element (i, p) is a[i * m_stride + p * k_stride]; one stride is 1. By rows
  // where k_stride is 1 (kPanelStride floats each), else by p (mr floats each).
  void (*pack_a)(const float* a, int64_t m_stride, int64_t k_stride, int rows, int64_t kc, float* panel);
  // Packs b[kc, cols], cols <= nr, whose element (p, j) is b[p * k_stride + j * n_stride]; one stride is 1. By p
  // (nr floats each), zeros beyond cols.
  void (*pack_b)(const float* b, int64_t k_stride, int64_t n_stride, int cols, int64_t kc, float* panel);
  void (*tile_by_rows)(const Tile& tile);  // a packed by rows
  void (*tile_by_k)(const Tile& tile);     // a packed by p
};

// The best kernels for this CPU.
F32Kernels f32_kernels();

}  // namespace weft
