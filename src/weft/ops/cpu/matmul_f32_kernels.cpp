#include "weft/ops/cpu/matmul_f32_kernels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "weft/ops/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/ops/cpu/matmul_f32_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace weft {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Lanes = hn::ScalableTag<float>;
using Vector = hn::Vec<Lanes>;

constexpr int kLanes = int(HWY_LANES(float));
constexpr int kNr = 2 * kLanes;
// As many rows as leave registers for two vectors of b and one of a.
#if HWY_TARGET == HWY_AVX3
constexpr int kMr = 14;  // of 32 registers
#elif HWY_ARCH_ARM_A64
constexpr int kMr = 12;  // of 32 registers
#else
constexpr int kMr = 6;  // of 16 registers
#endif

void prefetch_line(Prefetch& p) {
  __builtin_prefetch(p.at, 0, 2);
  p.at += 64;
  --p.lines_left;
  if (++p.line < p.lines_per_row) return;
  p.line = 0;
  p.at += p.row_bytes - p.lines_per_row * 64;
}

// c is read or overwritten at the end: it arrives meanwhile. It need not begin at a line.
Prefetch prefetch_of_c(const Tile& t) {
  Prefetch p;
  const uintptr_t first = reinterpret_cast<uintptr_t>(t.c) / 64, last = reinterpret_cast<uintptr_t>(t.c + kNr - 1) / 64;
  p.at = reinterpret_cast<const char*>(t.c);
  p.row_bytes = t.c_stride * 4;
  if (t.turned) {
    p.lines_per_row = 1;
    p.lines_left = t.cols;
    return p;
  }
  p.lines_per_row = t.c_stride % 16 == 0 ? int64_t(last - first) + 1 : kNr / 16 + 1;
  p.lines_left = t.rows * p.lines_per_row;
  return p;
}

template <int kRows>
void finish_tile(const Tile& t, const Vector (&lower)[size_t(kRows)], const Vector (&upper)[size_t(kRows)]) {
  const Lanes d;
  if (t.cols == kNr && !t.turned) {
    for (int i = 0; i < kRows; ++i) {
      float* c = t.c + i * t.c_stride;
      const float* start = t.add_to_c ? c : t.bias;
      const Vector c0 = start ? hn::Add(hn::LoadU(d, start), lower[i]) : lower[i];
      const Vector c1 = start ? hn::Add(hn::LoadU(d, start + kLanes), upper[i]) : upper[i];
      hn::StoreU(c0, d, c);
      hn::StoreU(c1, d, c + kLanes);
    }
    return;
  }
  HWY_ALIGN float sums[kRows * kNr];
  for (int i = 0; i < kRows; ++i) {
    hn::Store(lower[i], d, sums + i * kNr);
    hn::Store(upper[i], d, sums + i * kNr + kLanes);
  }
  // Along the rows of out in both cases: a row of it is some lines of the cache, a column as many as it has elements.
  const int rows = t.turned ? t.cols : kRows, cols = t.turned ? kRows : t.cols;
  const int row_step = t.turned ? 1 : kNr, col_step = t.turned ? kNr : 1;
  for (int i = 0; i < rows; ++i) {
    const float* sum = sums + i * row_step;
    float* c = t.c + i * t.c_stride;
    const float* start = t.add_to_c ? c : t.bias;
    for (int j = 0; j < cols; ++j) c[j] = start ? start[j] + sum[j * col_step] : sum[j * col_step];
  }
}

// One step of the sums: a column of a times a row of b.
template <int kRows, bool kByRows>
HWY_INLINE void add_products(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, Vector (&lower)[size_t(kRows)],
                             Vector (&upper)[size_t(kRows)]) {
  const Lanes d;
  const Vector b0 = hn::Load(d, b), b1 = hn::Load(d, b + kLanes);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    const Vector ai = hn::Set(d, a[kByRows ? i * kPanelStride : i]);
    lower[i] = hn::MulAdd(ai, b0, lower[i]);
    upper[i] = hn::MulAdd(ai, b1, upper[i]);
  }
}

template <int kRows, bool kByRows>
void tile(const Tile& t) {
  constexpr int64_t kStepA = kByRows ? 1 : kMr;
  Vector lower[size_t(kRows)], upper[size_t(kRows)];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) lower[i] = upper[i] = hn::Zero(Lanes());
  const float* a = t.a;
  const float* b = t.b;
  Prefetch prefetch = *t.prefetch, prefetch_c = prefetch_of_c(t);
  int64_t prefetches = std::min(t.prefetch_lines, prefetch.lines_left), steps = t.kc;
  for (; steps >= 4; steps -= 4, a += 4 * kStepA, b += 4 * kNr) {
    if (prefetches-- > 0) prefetch_line(prefetch);
    if (prefetch_c.lines_left > 0) prefetch_line(prefetch_c);
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) add_products<kRows, kByRows>(a + p * kStepA, b + p * kNr, lower, upper);
  }
  for (; steps > 0; --steps, a += kStepA, b += kNr) add_products<kRows, kByRows>(a, b, lower, upper);
  *t.prefetch = prefetch;
  finish_tile<kRows>(t, lower, upper);
}

template <bool kByRows, int... kRowsLess1>
void tile_of_rows(const Tile& t, std::integer_sequence<int, kRowsLess1...>) {
  using Function = void (*)(const Tile&);
  static constexpr Function kTiles[] = {tile<kRowsLess1 + 1, kByRows>...};
  kTiles[t.rows - 1](t);
}
template <bool kByRows>
void tile_of_any_rows(const Tile& t) {
  tile_of_rows<kByRows>(t, std::make_integer_sequence<int, kMr>());
}

// Copies kMr floats, and perhaps some more that the next step overwrites.
void copy_step(const float* a, float* panel) {
  const Lanes d;
  for (int i = 0; i < kMr; i += kLanes) hn::StoreU(hn::LoadU(d, a + i), d, panel + i);
}

void pack_a(const float* a, int64_t m_stride, int64_t k_stride, int rows, int64_t kc, float* panel) {
  if (k_stride == 1) {
    for (int i = 0; i < rows; ++i) std::memcpy(panel + i * kPanelStride, a + i * m_stride, size_t(kc) * sizeof(float));
    return;
  }
  // All but the last step may read beyond their rows, as another row of a follows.
  const int64_t whole = rows == kMr && k_stride >= kMr + kLanes ? kc - 1 : 0;
  for (int64_t p = 0; p < whole; ++p) copy_step(a + p * k_stride, panel + p * kMr);
  for (int64_t p = whole; p < kc; ++p)
    for (int i = 0; i < rows; ++i) panel[p * kMr + i] = a[p * k_stride + i];
}

// panel[p * kNr + j] = b[j * n_stride + p] for 4 columns j and 4 p.
void transpose_4x4(const float* b, int64_t n_stride, float* panel) {
#if HWY_TARGET == HWY_SCALAR
  for (int j = 0; j < 4; ++j)
    for (int p = 0; p < 4; ++p) panel[p * kNr + j] = b[j * n_stride + p];
#else
  const hn::Full128<float> d;
  const hn::Repartition<double, decltype(d)> pairs;
  const auto r0 = hn::LoadU(d, b), r1 = hn::LoadU(d, b + n_stride), r2 = hn::LoadU(d, b + 2 * n_stride),
             r3 = hn::LoadU(d, b + 3 * n_stride);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1)),
             low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3)),
             high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1)),
             high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, panel);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, panel + kNr);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, panel + 2 * kNr);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, panel + 3 * kNr);
#endif
}

void pack_b_transposed(const float* b, int64_t n_stride, int cols, int64_t kc, float* panel) {
  const int64_t whole = cols == kNr && kNr % 4 == 0 ? kc / 4 * 4 : 0;
  for (int64_t p = 0; p < whole; p += 16) {
    const int64_t end = std::min(whole, p + 16);
    for (int j = 0; j < kNr; j += 4)
      for (int64_t q = p; q < end; q += 4) transpose_4x4(b + j * n_stride + q, n_stride, panel + q * kNr + j);
  }
  for (int64_t p = whole; p < kc; ++p)
    for (int j = 0; j < kNr; ++j) panel[p * kNr + j] = j < cols ? b[j * n_stride + p] : 0.0f;
}

void pack_b(const float* b, int64_t k_stride, int64_t n_stride, int cols, int64_t kc, float* panel) {
  const Lanes d;
  if (n_stride != 1) return pack_b_transposed(b, n_stride, cols, kc, panel);
  for (int64_t p = 0; p < kc; ++p, b += k_stride, panel += kNr) {
    if (cols == kNr) {
      hn::Store(hn::LoadU(d, b), d, panel);
      hn::Store(hn::LoadU(d, b + kLanes), d, panel + kLanes);
    } else {
      for (int j = 0; j < kNr; ++j) panel[j] = j < cols ? b[j] : 0.0f;
    }
  }
}

F32Kernels kernels() {
  return {.target = hwy::TargetName(HWY_TARGET),
          .mr = kMr,
          .nr = kNr,
          .pack_a = pack_a,
          .pack_b = pack_b,
          .tile_by_rows = tile_of_any_rows<true>,
          .tile_by_k = tile_of_any_rows<false>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft {
HWY_EXPORT(kernels);
F32Kernels f32_kernels() { return HWY_DYNAMIC_DISPATCH(kernels)(); }
}  // namespace weft
#endif
