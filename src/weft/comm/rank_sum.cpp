#include "weft/comm/rank_sum.h"

#include <type_traits>

#include "weft/base/error.h"

namespace weft {
namespace {

// In pieces that stay in the first-level cache, so that every rank's memory is read once, in long runs. A piece's
// length is a constant where it can be: the compiler then uses vectors.
constexpr int64_t kPiece = 1024;

template <class T, class Sum, class N>
void add_piece(std::span<const void* const> from, int64_t at, N n, T* out) {
  Sum sum[kPiece];
  const T* first = static_cast<const T*>(from[0]) + at;
  for (int64_t i = 0; i < n; ++i) sum[i] = Sum(first[i]);
  for (const void* rank : from.subspan(1)) {
    const T* x = static_cast<const T*>(rank) + at;
    for (int64_t i = 0; i < n; ++i) sum[i] += Sum(x[i]);
  }
  for (int64_t i = 0; i < n; ++i) out[at + i] = T(sum[i]);
}

template <class T, class Sum = T>
void add(std::span<const void* const> from, int64_t n, void* out) {
  int64_t at = 0;
  for (; at + kPiece <= n; at += kPiece)
    add_piece<T, Sum>(from, at, std::integral_constant<int64_t, kPiece>(), static_cast<T*>(out));
  if (at < n) add_piece<T, Sum>(from, at, n - at, static_cast<T*>(out));
}

}  // namespace

void sum_ranks(std::span<const void* const> from, DType dtype, int64_t n, void* out) {
  switch (dtype) {
    case DType::f64:
      return add<double>(from, n, out);
    case DType::f32:
      return add<float>(from, n, out);
    case DType::bf16:
      return add<bf16, float>(from, n, out);
    default:
      WEFT_CHECK(false, "no sum of {}", name_of(dtype));
  }
}

}  // namespace weft
