#include <algorithm>
#include <cmath>
#include <cstring>

#include "weft/ops/cpu/experts.h"
#include "weft/ops/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/ops/cpu/expert_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/ops/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void gather_rows_of(const GatherRows& op, Range rows) {
  const auto x = rows_of<const T>(op.x);
  const auto out = rows_of<T>(op.out);
  const int32_t* order = op.order.as<int32_t>();
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    if (order[i] < 0)
      std::fill_n(out[i], out.cols, T(0.0f));
    else
      std::memcpy(out[i], x[order[i] / op.per], size_t(out.cols) * sizeof(T));
  }
}
void gather_rows(const GatherRows& op, Range rows) {
  with_type_of(op.x, [&]<class T>() { gather_rows_of<T>(op, rows); });
}

constexpr int64_t kAtOnce = 256;  // columns of a sum, in f32

template <class T>
void sum_rows_of(const SumRows& op, Range rows) {
  const auto x = rows_of<const T>(op.x);
  const auto out = rows_of<T>(op.out);
  const int64_t k = op.places.cols();
  float sums[kAtOnce];
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const int32_t* places = op.places.as<int32_t>() + i * k;
    for (int64_t first = 0; first < out.cols; first += kAtOnce) {
      const int64_t n = std::min(kAtOnce, out.cols - first);
      std::fill_n(sums, n, 0.0f);
      for (int64_t j = 0; j < k; ++j) {
        if (places[j] < 0) continue;
        for_each(n, [from = x[places[j]] + first, to = &sums[0]](auto t, int64_t c)
                        HWY_ATTR { store(hn::Add(load(t, to + c), load(t, from + c)), t, to + c); });
      }
      for_each(n, [from = &sums[0], to = out[i] + first](auto t, int64_t c)
                      HWY_ATTR { store(load(t, from + c), t, to + c); });
    }
  }
}
void sum_rows(const SumRows& op, Range rows) {
  with_type_of(op.x, [&]<class T>() { sum_rows_of<T>(op, rows); });
}

float row_scale(float scale, bool by_sigmoid) { return by_sigmoid ? 1 / (1 + std::exp(-scale)) : scale; }

template <class T>
void scale_rows_of(const ScaleRows& op, Range rows) {
  const auto x = rows_of<const T>(op.x);
  const auto y = rows_of<T>(op.y);
  const float* scale = op.scale.as<float>();
  for (int64_t i = rows.begin; i < rows.end; ++i)
    for_each(x.cols, [g = row_scale(scale[i], op.sigmoid), from = x[i], to = y[i]](auto t, int64_t j)
                         HWY_ATTR { store(hn::Mul(load(t, from + j), hn::Set(t, g)), t, to + j); });
}
void scale_rows(const ScaleRows& op, Range rows) {
  with_type_of(op.x, [&]<class T>() { scale_rows_of<T>(op, rows); });
}

template <class T>
void scale_rows_backward_of(const ScaleRowsBackward& op, Range rows) {
  const auto x = rows_of<const T>(op.x), dy = rows_of<const T>(op.dy);
  const auto dx = rows_of<T>(op.dx);
  const float* scale = op.scale.as<float>();
  float* dscale = op.dscale.as<float>();
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const float g = row_scale(scale[i], op.sigmoid);
    const float dot = sum_of(
        x.cols, [a = x[i], b = dy[i]](auto t, int64_t j) HWY_ATTR { return hn::Mul(load(t, a + j), load(t, b + j)); });
    for_each(x.cols, [g, from = dy[i], to = dx[i]](auto t, int64_t j)
                         HWY_ATTR { store(hn::Mul(load(t, from + j), hn::Set(t, g)), t, to + j); });
    dscale[i] = op.sigmoid ? g * (1 - g) * dot : dot;
  }
}
void scale_rows_backward(const ScaleRowsBackward& op, Range rows) {
  with_type_of(op.x, [&]<class T>() { scale_rows_backward_of<T>(op, rows); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
HWY_EXPORT(gather_rows);
HWY_EXPORT(sum_rows);
HWY_EXPORT(scale_rows);
HWY_EXPORT(scale_rows_backward);
void gather_rows(const GatherRows& op, Range rows) { HWY_DYNAMIC_DISPATCH(gather_rows)(op, rows); }
void sum_rows(const SumRows& op, Range rows) { HWY_DYNAMIC_DISPATCH(sum_rows)(op, rows); }
void scale_rows(const ScaleRows& op, Range rows) { HWY_DYNAMIC_DISPATCH(scale_rows)(op, rows); }
void scale_rows_backward(const ScaleRowsBackward& op, Range rows) {
  HWY_DYNAMIC_DISPATCH(scale_rows_backward)(op, rows);
}
}  // namespace weft::cpu
#endif
