#include "weft/ops/cpu/matmul_few_rows_kernels.h"

#include <algorithm>

#include "weft/ops/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/ops/cpu/matmul_few_rows_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

// Sums of a group, rows x columns, are a register each.
#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kMostSums = 24;  // of 32 registers
#else
constexpr int kMostSums = 8;  // of 16 registers
#endif
constexpr int kMostRows = kMostSums / 3;      // that meet columns at once
constexpr int kMostColumns = 8;               // streams that are read side by side
constexpr int64_t kLine = 64, kAhead = 4096;  // bytes

constexpr int columns_for(int rows) { return std::min(kMostColumns, kMostSums / rows); }

// The first n < kLanes elements, and zeros.
template <class T>
HWY_INLINE Floats load_first(const T* p, int64_t n) {
  HWY_ALIGN T first[size_t(kLanes)] = {};
  std::copy_n(p, n, first);
  return load(Lanes(), first);
}

template <class T>
HWY_INLINE void finish(const FewRows<T>& f, int64_t i, int64_t j, float sum) {
  const auto end = [&](auto* c) {
    const float start = f.add_to_c ? float(*c) : f.bias ? float(f.bias[j]) : 0.0f;
    *c = std::remove_reference_t<decltype(*c)>(start + sum);
  };
  const int64_t at = i * f.c_stride + j;
  f.c_type == DType::f32 ? end(static_cast<float*>(f.c) + at) : end(static_cast<T*>(f.c) + at);
}

// One step of the sums: a vector of each row of a times one of each row of b.
template <int kRows, int kCols, class LoadA, class LoadB>
HWY_INLINE void add_products(const LoadA& load_a, const LoadB& load_b, Floats (&sums)[size_t(kRows * kCols)]) {
  Floats b[size_t(kCols)];
#pragma GCC unroll 8
  for (int c = 0; c < kCols; ++c) b[c] = load_b(c);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Floats a = load_a(r);
#pragma GCC unroll 8
    for (int c = 0; c < kCols; ++c) sums[r * kCols + c] = hn::MulAdd(a, b[c], sums[r * kCols + c]);
  }
}

// c for kRows rows of a from i on and kCols rows of b from j on. The order of a sum follows from k alone.
template <int kRows, int kCols, class T>
void dots(const FewRows<T>& f, int64_t i, int64_t j) {
  constexpr int64_t kStep = kLine / int64_t(sizeof(T));
  const Lanes d;
  const float* a = f.a + i * f.a_stride;
  const T* b = f.b + j * f.b_stride;
  // Rows are short: the hardware's prefetcher finds each of them anew. So every line asks for one further on.
  const int64_t ahead = std::max(kCols * f.b_stride, kAhead / int64_t(sizeof(T)));
  const bool asks = i == 0 && (f.cols - j) * f.b_stride > ahead + kCols * f.b_stride;
  Floats sums[size_t(kRows * kCols)];
#pragma GCC unroll 24
  for (int s = 0; s < kRows * kCols; ++s) sums[s] = hn::Zero(d);
  int64_t p = 0;
  for (; p + kStep <= f.k; p += kStep) {
    if (asks)
#pragma GCC unroll 8
      for (int c = 0; c < kCols; ++c) __builtin_prefetch(b + c * f.b_stride + ahead + p, 0, 2);
#pragma GCC unroll 8
    for (int64_t q = p; q < p + kStep; q += kLanes)
      add_products<kRows, kCols>([&](int r) HWY_ATTR { return load(d, a + r * f.a_stride + q); },
                                 [&](int c) HWY_ATTR { return load(d, b + c * f.b_stride + q); }, sums);
  }
  for (; p + kLanes <= f.k; p += kLanes)
    add_products<kRows, kCols>([&](int r) HWY_ATTR { return load(d, a + r * f.a_stride + p); },
                               [&](int c) HWY_ATTR { return load(d, b + c * f.b_stride + p); }, sums);
  if (p < f.k)
    add_products<kRows, kCols>([&](int r) HWY_ATTR { return load_first(a + r * f.a_stride + p, f.k - p); },
                               [&](int c) HWY_ATTR { return load_first(b + c * f.b_stride + p, f.k - p); }, sums);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int c = 0; c < kCols; ++c) finish(f, i + r, j + c, hn::GetLane(hn::SumOfLanes(d, sums[r * kCols + c])));
}

// All rows of a, kRows at a time, then half as many and so on: from the second time on, b's are in the cache.
template <int kRows, int kCols, class T>
void dots_of_rows(const FewRows<T>& f, int64_t i, int64_t j) {
  for (; i + kRows <= f.rows; i += kRows) dots<kRows, kCols>(f, i, j);
  if constexpr (kRows > 1) {
    if (i < f.rows) dots_of_rows<kRows / 2, kCols>(f, i, j);
  }
}

// What is left of b's rows behind the last whole group is taken one by one.
template <int kRows, class T>
void groups(const FewRows<T>& f) {
  constexpr int kCols = columns_for(kRows);
  int64_t j = 0;
  for (; j + kCols <= f.cols; j += kCols) dots_of_rows<kRows, kCols>(f, 0, j);
  for (; j < f.cols; ++j) dots_of_rows<kRows, 1>(f, 0, j);
}
template <int kRows, class T>
void groups_of_rows(const FewRows<T>& f) {
  if constexpr (kRows > 1) {
    if (f.rows < kRows) return groups_of_rows<kRows / 2>(f);
  }
  groups<kRows>(f);
}
template <class T>
void few_rows(const FewRows<T>& f) {
  groups_of_rows<kMostRows >= 8 ? 8 : 2>(f);
}

FewRowsKernels few_rows_kernels() { return {few_rows<float>, few_rows<bf16>, few_rows<f16>}; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft {
namespace cpu {
HWY_EXPORT(few_rows_kernels);
}  // namespace cpu
FewRowsKernels few_rows_kernels() { return HWY_DYNAMIC_DISPATCH(cpu::few_rows_kernels)(); }
}  // namespace weft
#endif
