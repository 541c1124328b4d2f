#include "weft/ops/cpu/matmul_amx_kernels.h"

#include <algorithm>

#include "weft/base/error.h"

#if defined(__x86_64__)
#include "weft/ops/cpu/amx_tiles.h"

namespace weft {
namespace {

using namespace cpu::amx;

uint32_t first_lanes(int64_t n) { return n >= 32 ? ~uint32_t{0} : (uint32_t{1} << std::max<int64_t>(n, 0)) - 1; }

// Half an item of a panel whose values lie along k.
WEFT_AMX_INLINE void pack_along_k(const AmxPacking& p, int half) {
  const uint32_t values = first_lanes(p.k);
  const int begin = half * kTileRows;
  const uint16_t* from = p.from + begin * p.stride;
  __m512i r[16];
  for (int i = 0; i < kTileRows; ++i) {
    const bool inside = begin + i < p.lanes;
    const uint16_t* lane = inside ? from + i * p.stride : p.from;
    r[i] = _mm512_maskz_loadu_epi16(inside ? values : 0, lane);
    if (p.next_panel != 0) _mm_prefetch(reinterpret_cast<const char*>(lane + p.next_panel), _MM_HINT_T1);
  }
  if (!p.of_a) transpose(r);
  store_tile(r, p.to + half * kTileBytes);
}

// An item of a panel whose lanes lie side by side.
WEFT_AMX_INLINE void pack_across_k(const AmxPacking& p) {
  alignas(64) static constexpr uint16_t kPairs[64] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                      8,  40, 9,  41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47,
                                                      16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                                                      24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};
  const __m512i lower = _mm512_load_si512(kPairs), upper = _mm512_load_si512(kPairs + 32);
  const uint32_t lanes = first_lanes(p.lanes);
  __m512i left[16], right[16];
  for (int i = 0; i < kTileRows; ++i) {
    const uint16_t* row = p.from + 2 * i * p.k_stride;
    const bool first = 2 * i < p.k, second = 2 * i + 1 < p.k;
    const __m512i even = _mm512_maskz_loadu_epi16(first ? lanes : 0, first ? row : p.from);
    const __m512i odd = _mm512_maskz_loadu_epi16(second ? lanes : 0, second ? row + p.k_stride : p.from);
    if (p.next_panel != 0 && second) {
      _mm_prefetch(reinterpret_cast<const char*>(row + p.next_panel), _MM_HINT_T1);
      _mm_prefetch(reinterpret_cast<const char*>(row + p.next_panel + p.k_stride), _MM_HINT_T1);
    }
    left[i] = _mm512_permutex2var_epi16(even, lower, odd);
    right[i] = _mm512_permutex2var_epi16(even, upper, odd);
    if (p.of_a) continue;
    _mm512_store_si512(p.to + i * kRowBytes, left[i]);
    _mm512_store_si512(p.to + kTileBytes + i * kRowBytes, right[i]);
  }
  if (!p.of_a) return;
  transpose(left);
  store_tile(left, p.to);
  transpose(right);
  store_tile(right, p.to + kTileBytes);
}

WEFT_AMX __attribute__((noinline)) void pack_item(AmxPacking& p) {
  if (p.k_stride == 1) {
    pack_along_k(p, 0);
    pack_along_k(p, 1);
  } else {
    pack_across_k(p);
  }
  p.from += kAmxStep * p.k_stride;
  p.k -= kAmxStep;
  p.to += kAmxItemBytes;
}

WEFT_AMX_INLINE __m512 widened(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

// Columns [16 * half, 16 * half + 16) of row i.
WEFT_AMX_INLINE void write_half_row(const AmxResult& r, int i, int half) {
  const __mmask16 cols = __mmask16(first_lanes(r.cols) >> (16 * half));
  const float* sums = r.sums + (i / kTileRows * 2 + half) * 256 + i % kTileRows * 16;
  __m512 x = _mm512_load_ps(sums);
  if (r.bias != nullptr) x = _mm512_add_ps(widened(_mm256_maskz_loadu_epi16(cols, r.bias + 16 * half)), x);
  if (r.narrow) {
    auto* out = reinterpret_cast<uint16_t*>(r.out + i * r.row_bytes) + 16 * half;
    if (r.add_to_out) x = _mm512_add_ps(widened(_mm256_maskz_loadu_epi16(cols, out)), x);
    _mm256_mask_storeu_epi16(out, cols, (__m256i)_mm512_cvtneps_pbh(x));
  } else {
    float* out = reinterpret_cast<float*>(r.out + i * r.row_bytes) + 16 * half;
    if (r.add_to_out) x = _mm512_add_ps(_mm512_maskz_loadu_ps(cols, out), x);
    _mm512_mask_storeu_ps(out, cols, x);
  }
}

WEFT_AMX __attribute__((noinline)) void write_rows(AmxResult& r, int end) {
  end = std::min(end, r.rows);
  for (; r.next_row < end; ++r.next_row) {
    write_half_row(r, r.next_row, 0);
    if (r.cols > 16) write_half_row(r, r.next_row, 1);
  }
}

void prefetch_rows(const AmxResult& r, int begin, int end) {
  const int bytes = r.cols * (r.narrow ? 2 : 4);
  for (int i = begin; i < std::min(end, r.rows); ++i)
    for (int at = 0; at < bytes; at += 64) __builtin_prefetch(r.out + i * r.row_bytes + at, 1, 2);
}

// Between two steps of a product of `steps`.
WEFT_AMX_INLINE void do_chores(AmxChores& c, const AmxProduct& product, int rows, int64_t step) {
  if (c.result.next_row < c.result.rows) write_rows(c.result, int(step + 1) * rows);
  if (product.ahead != nullptr) prefetch_rows(*product.ahead, int(step) * rows, int(step + 1) * rows);
  c.packing_due += c.packing_share;
  while (c.packing_due >= c.packing_of && c.packing.k > 0) {
    pack_item(c.packing);
    c.packing_due -= c.packing_of;
  }
}

// Sums of 16 columns are tile 0; 1 is b's, 2 a's. Rows of b are short and read side by side, which no prefetcher of the
// hardware follows: the next 16 are asked for in the order of memory.
WEFT_AMX_INLINE void multiply_columns(const AmxFewRows& p, int64_t col) {
  const std::byte* a = p.a;
  const uint16_t *b = p.b + col * p.b_stride, *ahead = b + kTileRows * p.b_stride;
  _tile_zero(0);
  for (int64_t step = 0; step < p.steps; ++step, a += kAmxItemBytes, b += kAmxStep) {
    _tile_loadd(2, a, kRowBytes);
    _tile_loadd(1, b, p.b_stride * 2);
    _tile_dpbf16ps(0, 1, 2);
    for (int line = 0; line < kTileRows; ++line, ahead += kAmxStep)
      _mm_prefetch(reinterpret_cast<const char*>(ahead), _MM_HINT_T1);
  }
}

// The tile of sums, transposed, to out.
WEFT_AMX_INLINE void write_columns(const AmxFewRows& p, int64_t col) {
  alignas(64) float sums[256];
  _tile_stored(0, sums, kRowBytes);
  memory_is_used();
  __m512i r[16];
  for (int i = 0; i < kTileRows; ++i) r[i] = _mm512_load_si512(sums + i * kTileRows);
  transpose(r);
  store_tile(r, sums);
  AmxResult result = p.result;
  result.sums = sums, result.cols = kTileRows;
  result.out += col * (result.narrow ? 2 : 4);
  if (result.bias != nullptr) result.bias += col;
  write_rows(result, kTileRows);
}

}  // namespace

WEFT_AMX void amx_begin() { begin_tiles(); }
WEFT_AMX void amx_end() { end_tiles(); }

WEFT_AMX void amx_pack_all(AmxPacking packing) {
  while (packing.k > 0) pack_item(packing);
}

// Tiles 0 to 3 are the square, 4 and 5 a's two, 6 and 7 b's two.
WEFT_AMX void amx_multiply(const AmxProduct& product, AmxChores& chores) {
  memory_is_used();
  const std::byte *a = product.a, *b = product.b;
  char* sums = reinterpret_cast<char*>(product.sums);
  if (product.from_zero) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, kRowBytes);
    _tile_loadd(1, sums + kTileBytes, kRowBytes);
    _tile_loadd(2, sums + 2 * kTileBytes, kRowBytes);
    _tile_loadd(3, sums + 3 * kTileBytes, kRowBytes);
  }
  const int rows = int((kAmxPanel + product.steps - 1) / product.steps);
  for (int64_t step = 0; step < product.steps; ++step, a += kAmxItemBytes, b += kAmxItemBytes) {
    _tile_loadd(4, a, kRowBytes);
    _tile_loadd(6, b, kRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kTileBytes, kRowBytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kTileBytes, kRowBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    do_chores(chores, product, rows, step);
  }
  _tile_stored(0, sums, kRowBytes);
  _tile_stored(1, sums + kTileBytes, kRowBytes);
  _tile_stored(2, sums + 2 * kTileBytes, kRowBytes);
  _tile_stored(3, sums + 3 * kTileBytes, kRowBytes);
  memory_is_used();
}

WEFT_AMX void amx_multiply_few(const AmxFewRows& product) {
  memory_is_used();
  for (int64_t col = 0; col < product.cols; col += kTileRows) {
    multiply_columns(product, col);
    write_columns(product, col);
  }
}

void amx_finish_packing(AmxChores& chores) {
  while (chores.packing.k > 0) pack_item(chores.packing);
}

void amx_finish(AmxChores& chores) {
  amx_finish_packing(chores);
  write_rows(chores.result, kAmxPanel);
}

}  // namespace weft
#else
namespace weft {

// Other architectures have no such unit, and nobody calls these.
void amx_begin() { WEFT_CHECK(false, "this CPU has no AMX"); }
void amx_end() {}
void amx_pack_all(AmxPacking) {}
void amx_multiply(const AmxProduct&, AmxChores&) {}
void amx_multiply_few(const AmxFewRows&) {}
void amx_finish_packing(AmxChores&) {}
void amx_finish(AmxChores&) {}

}  // namespace weft
#endif
