#include "weft/ops/cpu/dropout.h"

#include <algorithm>
#include <cmath>

#include "weft/ops/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/ops/cpu/dropout.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/ops/cpu/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kRun = 256;  // elements whose random words are made at a time

// Scales the elements whose word is greater than `last_dropped`, zeroes the others.
template <class T>
void keep_some(int64_t n, const T* x, const uint32_t* words, uint32_t last_dropped, float scale, T* y) {
  for_each(n, [=](auto d, int64_t j) HWY_ATTR {
    const hn::Rebind<uint32_t, decltype(d)> d32;
    const auto kept = hn::RebindMask(d, hn::Gt(hn::LoadU(d32, words + j), hn::Set(d32, last_dropped)));
    store(hn::IfThenElseZero(kept, hn::Mul(load(d, x + j), hn::Set(d, scale))), d, y + j);
  });
}

template <class T>
void dropout_rows(const Dropout& op, Range rows) {
  const auto x = rows_of<const T>(op.x);
  const auto y = rows_of<T>(op.y);
  const int64_t* tokens = op.tokens.as<int64_t>();
  const auto threshold = uint64_t(std::ceil(op.dropout.p * 0x1p32));  // words below are dropped
  const auto scale = float(1 / (1 - op.dropout.p));
  HWY_ALIGN uint32_t words[size_t(kRun + 4 * kPhiloxBlocks + 4)];
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const uint64_t first = uint64_t(tokens[i] * op.total + op.first);
    for (int64_t j = 0; j < x.cols; j += kRun) {
      const int64_t n = std::min(kRun, x.cols - j);
      const uint32_t* from = random_words(op.dropout.key, first + uint64_t(j), n, words);
      keep_some(n, x[i] + j, from, uint32_t(threshold - 1), scale, y[i] + j);
    }
  }
}

template <class T>
void copy_rows(const Dropout& op, Range rows) {
  if (op.x.data == op.y.data) return;
  for (int64_t i = rows.begin; i < rows.end; ++i)
    std::copy_n(rows_of<const T>(op.x)[i], op.x.cols(), rows_of<T>(op.y)[i]);
}
void dropout(const Dropout& op, Range rows) {
  if (op.dropout.p == 0)
    with_type_of(op.x, [&]<class T>() { copy_rows<T>(op, rows); });
  else
    with_type_of(op.x, [&]<class T>() { dropout_rows<T>(op, rows); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
HWY_EXPORT(dropout);
void dropout(const Dropout& op, Range rows) { HWY_DYNAMIC_DISPATCH(dropout)(op, rows); }
}  // namespace weft::cpu
#endif
