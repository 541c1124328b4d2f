// Tiles of matrix units: 16 rows of 64 bytes, 1 KiB each, one after the other in memory.
//   plain    [16 rows, 32 columns] of bf16                        left operand, multiplied over columns
//   across   the same of the transposed matrix                    left operand, multiplied over rows
//   turned   [16 pairs of columns, 16 rows] of pairs of bf16      right operand, multiplied over columns
//   paired   [16 pairs of rows, 16 columns] of pairs of bf16      right operand, multiplied over rows
//   sums     [16 rows, 16 columns] of f32
#pragma once
#if defined(__x86_64__)
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12 warns of its own _mm512_undefined_ps
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "weft/ops/cpu/attention_kernels.h"

#define WEFT_AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define WEFT_AMX_INLINE \
  __attribute__((always_inline, target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"))) inline

namespace weft::cpu::amx {

using Word = uint16_t;                                           // a bf16's bits
inline constexpr int64_t kTile = 16, kDepth = 32;                // rows of a tile; bf16 in each
inline constexpr int64_t kTileWords = 512, kTileFloats = 256;    // of bf16; of f32
inline constexpr int64_t kHalf = 32, kHalves = kBlockRows / 32;  // rows of a block that are computed together
inline constexpr float kLog2E = 1.44269504088896341f, kLn2 = 0.693147180559945309f;

inline int64_t wide(int64_t dim) { return (dim + kDepth - 1) / kDepth * kDepth; }

// Tiles of a thread, from construction to the end of the scope.
class TilesInUse {
 public:
  WEFT_AMX TilesInUse() {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    for (int i = 0; i < 8; ++i) config.bytes[i] = 64, config.rows[i] = 16;
    __asm__ volatile("" ::"r"(&config) : "memory");
    _tile_loadconfig(&config);
  }
  WEFT_AMX ~TilesInUse() { _tile_release(); }
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;
};

// c (+)= a b, of two rows of tiles and two columns of tiles at a time.   Distances from tile to tile, in elements.
struct TileProduct {
  int64_t rows, columns, steps;  // tiles; rows and columns even
  const Word* a;
  int64_t a_row, a_step;
  const Word* b;
  int64_t b_step, b_column;
  float* c;
  int64_t c_row, c_column;
  int64_t c_stride;  // bytes, from row to row
  bool add;
};
// g++ does not know that these instructions read memory.
WEFT_AMX inline void multiply(const TileProduct& p) {
  __asm__ volatile("" ::: "memory");
  for (int64_t i = 0; i < p.rows; i += 2) {
    for (int64_t j = 0; j < p.columns; j += 2) {
      float* c = p.c + i * p.c_row + j * p.c_column;
      if (p.add) {
        _tile_loadd(0, c, p.c_stride);
        _tile_loadd(1, c + p.c_column, p.c_stride);
        _tile_loadd(2, c + p.c_row, p.c_stride);
        _tile_loadd(3, c + p.c_row + p.c_column, p.c_stride);
      } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
      const Word *a = p.a + i * p.a_row, *b = p.b + j * p.b_column;
      for (int64_t k = 0; k < p.steps; ++k, a += p.a_step, b += p.b_step) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + p.b_column, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + p.a_row, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      _tile_stored(0, c, p.c_stride);
      _tile_stored(1, c + p.c_column, p.c_stride);
      _tile_stored(2, c + p.c_row, p.c_stride);
      _tile_stored(3, c + p.c_row + p.c_column, p.c_stride);
    }
  }
  __asm__ volatile("" ::: "memory");
}

// 2^x for x <= 0, and a little above; 0 below -150. NaN stays NaN, 2^0 = 1 exactly. The polynomial on [0, 1) errs by
// 2.9e-6: a 600th of what rounding to bf16 may, and lse by as much.
WEFT_AMX_INLINE __m512 exp2_of(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-200.0f), x);
  const __m512 r = _mm512_reduce_ps(x, 0x09);  // x - floor(x)
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0.013426683843135834f), r, _mm512_set1_ps(0.052242472767829895f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.241280198097229f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.6930448412895203f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, x);
}

// Rows of heads: those of a block, or of a key head. Rows [0, rows) exist, others are zeros.
struct HeadRows {
  const bf16* at = nullptr;
  int64_t rows = 0, dim = 0, stride = 0, heads = 1;
  const bf16* operator[](int64_t r) const {
    return at + uint32_t(r) / uint32_t(heads) * stride + int64_t(uint32_t(r) % uint32_t(heads)) * dim;
  }
};
inline HeadRows rows_of_block(const Tensor& x, const QueryBlock& b, int64_t dim) {
  return {x.as<bf16>() + b.first_row() * x.row_stride + b.head * dim, b.rows(), dim, x.row_stride, b.heads};
}
inline HeadRows rows_of_keys(const Tensor& x, Range rows, int64_t kv, int64_t dim) {
  return {x.as<bf16>() + rows.begin * x.row_stride + kv * dim, rows.size(), dim, x.row_stride, 1};
}

WEFT_AMX_INLINE __mmask16 first_of_16(int64_t n) { return n >= 16 ? 0xffff : n <= 0 ? 0 : __mmask16((1u << n) - 1); }
WEFT_AMX_INLINE __m512i load_row(const HeadRows& x, int64_t r, int64_t step) {
  const int64_t n = x.dim - step * kDepth;
  if (r < 0 || r >= x.rows) return _mm512_setzero_si512();
  const __mmask32 mask = n >= 32 ? ~0u : (1u << n) - 1;
  return _mm512_maskz_loadu_epi16(mask, x[r] + step * kDepth);
}

// 16 x 16 numbers of 32 bits.
WEFT_AMX_INLINE void transpose(__m512i* x) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    x[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(x[i], x[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_i32x4(x[i], x[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_i32x4(x[8 + i], x[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_i32x4(x[8 + i], x[12 + i], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    x[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
    x[4 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88);
    x[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
    x[12 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xdd);
  }
}
WEFT_AMX_INLINE void store_tile(const __m512i* x, Word* to) {
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + i * kDepth, x[i]);
}
// Pairs of the rows 2 i and 2 i + 1 of 32 from `row` on, in two tiles of 16 columns.
WEFT_AMX_INLINE void load_pairs(const HeadRows& x, int64_t row, int64_t step, __m512i* low, __m512i* high) {
  const __m512i interleave = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38,
                                              6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i upper = _mm512_add_epi16(interleave, _mm512_set1_epi16(16));
  for (int i = 0; i < 16; ++i) {
    const __m512i a = load_row(x, row + 2 * i, step), b = load_row(x, row + 2 * i + 1, step);
    low[i] = _mm512_permutex2var_epi16(a, interleave, b);
    high[i] = _mm512_permutex2var_epi16(a, upper, b);
  }
}

// Row r of x is row r + lead of the tiles.
// to [rows / 16, wide(dim) / 32]
WEFT_AMX inline void to_plain(const HeadRows& x, int64_t lead, int64_t rows, Word* to) {
  const int64_t steps = wide(x.dim) / kDepth;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < steps; ++k)
      _mm512_storeu_si512(to + (r / kTile * steps + k) * kTileWords + r % kTile * kDepth, load_row(x, r - lead, k));
}
// to [wide(dim) / 16, rows / 32]
WEFT_AMX inline void to_across(const HeadRows& x, int64_t lead, int64_t rows, int64_t row_steps, Word* to) {
  __m512i low[16], high[16];
  for (int64_t k = 0; k < wide(x.dim) / kDepth; ++k)
    for (int64_t s = 0; s < rows / kDepth; ++s) {
      load_pairs(x, s * kDepth - lead, k, low, high);
      transpose(low);
      transpose(high);
      store_tile(low, to + (2 * k * row_steps + s) * kTileWords);
      store_tile(high, to + ((2 * k + 1) * row_steps + s) * kTileWords);
    }
}
// A block's rows: to [wide(dim) / 32, kBlockRows / 16]
WEFT_AMX inline void to_turned(const HeadRows& x, Word* to) {
  __m512i t[16];
  for (int64_t k = 0; k < wide(x.dim) / kDepth; ++k)
    for (int64_t tile = 0; tile < kBlockRows / kTile; ++tile) {
      for (int i = 0; i < 16; ++i) t[i] = load_row(x, tile * kTile + i, k);
      transpose(t);
      store_tile(t, to + (k * (kBlockRows / kTile) + tile) * kTileWords);
    }
}
// A block's rows: to [kHalves, wide(dim) / 16]
WEFT_AMX inline void to_paired(const HeadRows& x, Word* to) {
  const int64_t columns = wide(x.dim) / kTile;
  __m512i low[16], high[16];
  for (int64_t k = 0; k < columns / 2; ++k)
    for (int64_t s = 0; s < kHalves; ++s) {
      load_pairs(x, s * kHalf, k, low, high);
      store_tile(low, to + (s * columns + 2 * k) * kTileWords);
      store_tile(high, to + (s * columns + 2 * k + 1) * kTileWords);
    }
}

// What a half of a block's rows sees.
struct Sight {
  int64_t key_at, window, heads, count;    // of keys: [0, count)
  int64_t begin = 0, end = 0;              // keys that any row sees
  int64_t whole_begin = 0, whole_end = 0;  // that all rows see
  int64_t first_row;
  Sight(const AttentionHeads& h, const QueryBlock& b, int64_t half)
      : key_at(b.key_at()), window(h.window), heads(b.heads), count(b.span->k_count), first_row(half * kHalf) {
    if (first_row >= b.rows()) return;
    const int64_t first = key_at + first_row / heads,
                  last = key_at + (std::min(b.rows(), first_row + kHalf) - 1) / heads;
    begin = window ? std::max<int64_t>(0, first - window + 1) : 0;
    end = std::min(count, last + 1);
    whole_begin = window ? std::max<int64_t>(0, last - window + 1) : 0;
    whole_end = std::min(count, first + 1);
  }
  bool any(int64_t key, int64_t keys) const { return begin < end && key < end && key + keys > begin; }
  bool whole(int64_t key, int64_t keys) const { return key >= whole_begin && key + keys <= whole_end; }
  // Bit r: whether row first_row + r sees the key.
  uint32_t rows_that_see(int64_t key) const {
    if (key < 0 || key >= count) return 0;
    const int64_t from = std::clamp<int64_t>((key - key_at) * heads - first_row, 0, 32);
    const int64_t to = window ? std::clamp<int64_t>((key + window - key_at) * heads - first_row, 0, 32) : 32;
    return uint32_t((uint64_t{1} << to) - 1) & ~uint32_t((uint64_t{1} << from) - 1);
  }
};

// The row of a half that column c of its two tiles holds, after pairs were interleaved within 128 bits.
inline int64_t row_of_column(int64_t c) { return c % 16 / 4 * 8 + c / 16 * 4 + c % 4; }

}  // namespace weft::cpu::amx
#endif
