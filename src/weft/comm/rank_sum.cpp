#include "weft/comm/rank_sum.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "weft/base/error.h"

namespace weft {
namespace {

// Elements of a run. A run stays in the first-level cache, so that every rank's memory is read once, in order. `out`
// may be one of the operands, but an element of it depends on no other: hence the pragmas.
constexpr int64_t kRun = 1024;

template <class T, class Sum>
void add_run(std::span<const void* const> from, int64_t at, int64_t n, T* out) {
  const auto operand = [&](size_t rank) { return static_cast<const T*>(from[rank]) + at; };
  const T *first = operand(0), *second = operand(1), *last = operand(from.size() - 1);
  T* to = out + at;
  if (from.size() == 2) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] = T(Sum(first[i]) + Sum(second[i]));
    return;
  }
  Sum sum[kRun];
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) sum[i] = Sum(first[i]) + Sum(second[i]);
  for (size_t rank = 2; rank + 1 < from.size(); ++rank) {
    const T* x = operand(rank);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) sum[i] += Sum(x[i]);
  }
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] = T(sum[i] + Sum(last[i]));
}

template <class T, class Sum = T>
void add(std::span<const void* const> from, int64_t n, void* out) {
  if (from.size() == 1) {
    if (out != from[0]) std::memcpy(out, from[0], size_t(n) * sizeof(T));
    return;
  }
  for (int64_t at = 0; at < n; at += kRun) add_run<T, Sum>(from, at, std::min(kRun, n - at), static_cast<T*>(out));
}

}  // namespace

void check_has_sum(DType t) {
  WEFT_CHECK(t == DType::f64 || t == DType::f32 || t == DType::bf16 || t == DType::f16, "no sum of {}", name_of(t));
}

void sum_ranks_in_place(std::span<void* const> ranks, DType dtype, int64_t n) {
  std::vector<const void*> from(ranks.size());
  for (int64_t at = 0; at < n; at += kRun) {  // which is then still in the cache, for each to have
    const int64_t here = std::min(kRun, n - at);
    const auto run = [&](size_t rank) { return static_cast<std::byte*>(ranks[rank]) + at * size_of(dtype); };
    for (size_t r = 0; r < ranks.size(); ++r) from[r] = run(r);
    sum_ranks(from, dtype, here, run(0));
    for (size_t r = 1; r < ranks.size(); ++r) std::memcpy(run(r), run(0), size_t(here * size_of(dtype)));
  }
}

void sum_ranks(std::span<const void* const> from, DType dtype, int64_t n, void* out) {
  switch (dtype) {
    case DType::f64:
      return add<double>(from, n, out);
    case DType::f32:
      return add<float>(from, n, out);
    case DType::bf16:
      return add<bf16, float>(from, n, out);
    case DType::f16:
      return add<f16, float>(from, n, out);
    default:
      check_has_sum(dtype);
  }
}

}  // namespace weft
