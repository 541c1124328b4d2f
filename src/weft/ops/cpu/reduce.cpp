#include "weft/ops/cpu/reduce.h"

#include <algorithm>
#include <array>

#include "weft/ops/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/ops/cpu/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void bias_grad_rows(const BiasGrad& op, Range rows, float* part) {
  const auto dy = rows_of<const T>(op.dy);
  std::fill_n(part, dy.cols, 0.0f);
  int64_t i = rows.begin;
  for (; i + 4 <= rows.end; i += 4) {  // four at a time: a quarter of the reads and writes of `part`
    const T *a = dy[i], *b = dy[i + 1], *c = dy[i + 2], *d = dy[i + 3];
    for_each(dy.cols, [=](auto t, int64_t j) HWY_ATTR {
      const auto pairs = hn::Add(hn::Add(load(t, a + j), load(t, b + j)), hn::Add(load(t, c + j), load(t, d + j)));
      store(hn::Add(load(t, part + j), pairs), t, part + j);
    });
  }
  for (; i < rows.end; ++i)
    for_each(dy.cols, [part, row = dy[i]](auto t, int64_t j)
                          HWY_ATTR { store(hn::Add(load(t, part + j), load(t, row + j)), t, part + j); });
}
template <class T>
void factor_grad_rows(const BiasGrad& op, Range rows, float* part) {
  const auto dy = rows_of<const T>(op.dy), x = rows_of<const T>(op.x);
  std::fill_n(part, dy.cols, 0.0f);
  for (int64_t i = rows.begin; i < rows.end; ++i)
    for_each(dy.cols, [part, a = dy[i], b = x[i]](auto t, int64_t j) HWY_ATTR {
      store(hn::MulAdd(load(t, a + j), load(t, b + j), load(t, part + j)), t, part + j);
    });
}
void bias_grad(const BiasGrad& op, Range rows, float* part) {
  with_type_of(op.dy,
               [&]<class T>() { op.x ? factor_grad_rows<T>(op, rows, part) : bias_grad_rows<T>(op, rows, part); });
}

void sum_parts(const PartSum& s, Range columns) {
  for_each(columns.size(), [&](auto t, int64_t j) HWY_ATTR {
    const float* from = s.parts + columns.begin + j;
    float* to = s.out + columns.begin + j;
    auto total = load(t, from);
    for (int64_t i = 1; i < s.count; ++i) total = hn::Add(total, load(t, from + i * s.stride));
    store(s.accumulate ? hn::Add(load(t, to), total) : total, t, to);
  });
}

// The sum of step(sum, v) over a run of numbers v, in double.
template <class F>
double sum_in_double(const float* x, int64_t n, const F& step) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const int64_t lanes = int64_t(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t j = 0;
  for (; j + 4 * lanes <= n; j += 4 * lanes) {
    s0 = step(s0, hn::PromoteTo(d, hn::LoadU(half, x + j)));
    s1 = step(s1, hn::PromoteTo(d, hn::LoadU(half, x + j + lanes)));
    s2 = step(s2, hn::PromoteTo(d, hn::LoadU(half, x + j + 2 * lanes)));
    s3 = step(s3, hn::PromoteTo(d, hn::LoadU(half, x + j + 3 * lanes)));
  }
  double total = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  const hn::CappedTag<double, 1> one;
  for (; j < n; ++j) total = hn::GetLane(step(hn::Set(one, total), hn::Set(one, double(x[j]))));
  return total;
}
double sum_f32(const float* x, int64_t n) {
  return sum_in_double(x, n, [](auto sum, auto v) HWY_ATTR { return hn::Add(sum, v); });
}
// In double the square of a float is exact, so multiplying and adding at once rounds as one after the other.
void leaf_squares_f32(const float* x, int64_t n, double* leaves) {
  for (int64_t i = 0; i < n; i += kSumLeaf)
    *leaves++ = sum_in_double(x + i, std::min(kSumLeaf, n - i),
                              [](auto sum, auto v) HWY_ATTR { return hn::MulAdd(v, v, sum); });
}

template <class T>
int64_t count_nonfinite_of(const T* x, int64_t n) {
  int64_t count = 0;
  for_each(n, [&](auto t, int64_t j)
                  HWY_ATTR { count += int64_t(hn::CountTrue(t, hn::Not(hn::IsFinite(load(t, x + j))))); });
  return count;
}
int64_t count_nonfinite(const Tensor& x, Range r) {
  return with_type_of(x, [&]<class T>() { return count_nonfinite_of(flat<T>(x) + r.begin, r.size()); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
HWY_EXPORT(bias_grad);
HWY_EXPORT(sum_parts);
HWY_EXPORT(sum_f32);
HWY_EXPORT(leaf_squares_f32);
HWY_EXPORT(count_nonfinite);
void bias_grad(const BiasGrad& op, Range rows, float* part) { HWY_DYNAMIC_DISPATCH(bias_grad)(op, rows, part); }
void sum_parts(const PartSum& sum, Range columns) { HWY_DYNAMIC_DISPATCH(sum_parts)(sum, columns); }

double sum(const Tensor& x, Range r) {
  if (x.dtype == DType::f32) return HWY_DYNAMIC_DISPATCH(sum_f32)(flat<float>(x) + r.begin, r.size());
  double total = 0;
  for (int64_t i = r.begin; i < r.end; ++i) total += flat<double>(x)[i];
  return total;
}
double tree_sum(double* leaves, int64_t n) {
  for (; n > 1; n = (n + 1) / 2)
    for (int64_t i = 0; i < n; i += 2) leaves[i / 2] = i + 1 < n ? leaves[i] + leaves[i + 1] : leaves[i];
  return n == 0 ? 0 : leaves[0];
}
double sum_squares(const Tensor& x, Range r) {
  std::array<double, kSumElements / kSumLeaf> leaves;
  if (x.dtype == DType::f32) {
    HWY_DYNAMIC_DISPATCH(leaf_squares_f32)(flat<float>(x) + r.begin, r.size(), leaves.data());
  } else {
    for (int64_t i = 0; i < r.size(); ++i) {
      const double v = flat<double>(x)[r.begin + i];
      leaves[size_t(i / kSumLeaf)] = (i % kSumLeaf ? leaves[size_t(i / kSumLeaf)] : 0) + v * v;
    }
  }
  return tree_sum(leaves.data(), (r.size() + kSumLeaf - 1) / kSumLeaf);
}
int64_t count_nonfinite(const Tensor& x, Range elements) { return HWY_DYNAMIC_DISPATCH(count_nonfinite)(x, elements); }
}  // namespace weft::cpu
#endif
