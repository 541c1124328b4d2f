#include "weft/ops/cpu/attention_sink.h"

#include <algorithm>
#include <cmath>

#include "weft/ops/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/ops/cpu/attention_sink.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void sink_rows(const AttentionSink& op, Range rows) {
  const auto o = rows_of<T>(op.o);
  const auto lse = rows_of<float>(op.lse);
  const int64_t e = o.cols / lse.cols;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    for (int64_t h = 0; h < lse.cols; ++h) {
      const float before = lse[i][h], sink = float(flat<T>(op.sinks)[h]), most = std::max(before, sink);
      lse[i][h] = most + std::log(std::exp(before - most) + std::exp(sink - most));
      for_each(e, [at = o[i] + h * e, factor = std::exp(before - lse[i][h])](auto t, int64_t j)
                      HWY_ATTR { store(hn::Mul(load(t, at + j), hn::Set(t, factor)), t, at + j); });
    }
  }
}
void attention_sink(const AttentionSink& op, Range rows) {
  with_type_of(op.o, [&]<class T>() { sink_rows<T>(op, rows); });
}

template <class T>
void sink_rows_backward(const AttentionSinkBackward& op, Range rows, float* part) {
  const auto o = rows_of<const T>(op.o), dout = rows_of<const T>(op.dout);
  const auto lse = rows_of<const float>(op.lse);
  const int64_t e = o.cols / lse.cols;
  std::fill_n(part, lse.cols, 0.0f);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    for (int64_t h = 0; h < lse.cols; ++h) {
      const float dot = sum_of(e, [a = o[i] + h * e, b = dout[i] + h * e](auto t, int64_t j)
                                      HWY_ATTR { return hn::Mul(load(t, a + j), load(t, b + j)); });
      part[h] -= std::exp(float(flat<T>(op.sinks)[h]) - lse[i][h]) * dot;
    }
  }
}
void attention_sink_backward(const AttentionSinkBackward& op, Range rows, float* part) {
  with_type_of(op.o, [&]<class T>() { sink_rows_backward<T>(op, rows, part); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
HWY_EXPORT(attention_sink);
HWY_EXPORT(attention_sink_backward);
void attention_sink(const AttentionSink& op, Range rows) { HWY_DYNAMIC_DISPATCH(attention_sink)(op, rows); }
void attention_sink_backward(const AttentionSinkBackward& op, Range rows, float* part) {
  HWY_DYNAMIC_DISPATCH(attention_sink_backward)(op, rows, part);
}
}  // namespace weft::cpu
#endif
