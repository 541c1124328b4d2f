#include "weft/ops/cpu/matmul_few_rows_groups.h"
#include "weft/ops/cpu/matmul_few_rows_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define WEFT_PAIRS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define WEFT_PAIRS_INLINE WEFT_PAIRS inline __attribute__((always_inline))

namespace weft {
namespace {

constexpr int kMostSums = 24;    // of 32 registers
constexpr int64_t kValues = 32;  // of a register, and of a line

// One step of the sums: a register of each row of a times one of each row of b; of the values in `first` alone.
template <int kRows, int kCols>
WEFT_PAIRS_INLINE void add_pairs(const bf16* a, int64_t a_stride, const bf16* b, int64_t b_stride, __mmask32 first,
                                 __m512 (&sums)[size_t(kRows * kCols)]) {
  __m512i from_b[size_t(kCols)];
#pragma GCC unroll 8
  for (int c = 0; c < kCols; ++c) from_b[c] = _mm512_maskz_loadu_epi16(first, b + c * b_stride);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const __m512i from_a = _mm512_maskz_loadu_epi16(first, a + r * a_stride);
#pragma GCC unroll 8
    for (int c = 0; c < kCols; ++c)
      sums[r * kCols + c] = _mm512_dpbf16_ps(sums[r * kCols + c], __m512bh(from_a), __m512bh(from_b[c]));
  }
}

WEFT_PAIRS_INLINE float sum_of(__m512 lanes) {
  alignas(64) float x[16];
  _mm512_store_ps(x, lanes);
  const __m256 eight = _mm256_add_ps(_mm256_load_ps(x), _mm256_load_ps(x + 8));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

struct Dots {
  // The order of a sum follows from k alone.
  template <int kRows, int kCols>
  WEFT_PAIRS static void of(const FewRows<bf16, bf16>& f, int64_t i, int64_t j) {
    const bf16* a = f.a + i * f.a_stride;
    const bf16* b = f.b + j * f.b_stride;
    const int64_t ahead = few_rows::ahead_of(f, kCols);
    const bool asks = few_rows::asks_ahead(f, i, j, kCols);
    __m512 sums[size_t(kRows * kCols)];
#pragma GCC unroll 24
    for (int s = 0; s < kRows * kCols; ++s) sums[s] = _mm512_setzero_ps();
    int64_t p = 0;
    for (; p + kValues <= f.k; p += kValues) {
      if (asks)
#pragma GCC unroll 8
        for (int c = 0; c < kCols; ++c) __builtin_prefetch(b + c * f.b_stride + ahead + p, 0, 2);
      add_pairs<kRows, kCols>(a + p, f.a_stride, b + p, f.b_stride, ~__mmask32{0}, sums);
    }
    if (p < f.k) add_pairs<kRows, kCols>(a + p, f.a_stride, b + p, f.b_stride, (__mmask32{1} << (f.k - p)) - 1, sums);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int c = 0; c < kCols; ++c) few_rows::finish(f, i + r, j + c, sum_of(sums[r * kCols + c]));
  }
};

}  // namespace

void few_rows_in_pairs(const FewRows<bf16, bf16>& product) { few_rows::groups_of_rows<Dots, kMostSums, 8>(product); }

}  // namespace weft
#else
#include "weft/base/error.h"

namespace weft {

void few_rows_in_pairs(const FewRows<bf16, bf16>&) { WEFT_CHECK(false, "this CPU does not multiply pairs of bf16"); }

}  // namespace weft
#endif
