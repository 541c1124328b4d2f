#include "weft/ops/cpu/matmul_few_rows_kernels.h"

#include <algorithm>

#include "weft/ops/cpu/matmul_few_rows_groups.h"
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
constexpr int kMostRows = kMostSums >= 24 ? 8 : 2;  // that meet columns at once

// The first n < kLanes elements, and zeros.
template <class T>
HWY_INLINE Floats load_first(const T* p, int64_t n) {
  HWY_ALIGN T first[size_t(kLanes)] = {};
  std::copy_n(p, n, first);
  return load(Lanes(), first);
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
  constexpr int64_t kStep = few_rows::kLine / int64_t(sizeof(T));
  const Lanes d;
  const float* a = f.a + i * f.a_stride;
  const T* b = f.b + j * f.b_stride;
  const int64_t ahead = few_rows::ahead_of(f, kCols);
  const bool asks = few_rows::asks_ahead(f, i, j, kCols);
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
    for (int c = 0; c < kCols; ++c)
      few_rows::finish(f, i + r, j + c, hn::GetLane(hn::SumOfLanes(d, sums[r * kCols + c])));
}

struct Dots {
  template <int kRows, int kCols, class T>
  static void of(const FewRows<T>& f, int64_t i, int64_t j) {
    dots<kRows, kCols>(f, i, j);
  }
};
template <class T>
void multiply(const FewRows<T>& f) {
  few_rows::groups_of_rows<Dots, kMostSums, kMostRows>(f);
}

FewRowsKernels few_rows_kernels() { return {multiply<float>, multiply<bf16>, multiply<f16>}; }

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
