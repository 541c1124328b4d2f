#include "weft/ops/cpu/optimizer.h"

#include <cmath>

#include "weft/ops/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/ops/cpu/optimizer.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

// An update's scalars, combined in double before they are rounded.
struct AdamWScalars {
  float scale;                     // g = scale grad: first, for the square of either may be out of range
  float beta1, beta2, new1, new2;  // m = beta1 m + new1 g, v = beta2 v + new2 g^2
  float keep, step, root, eps;     // w = keep w - step m / (root sqrt(v) + eps)
  explicit AdamWScalars(const AdamW& op)
      : scale(float(op.grad_scale)),
        beta1(float(op.beta1)),
        beta2(float(op.beta2)),
        new1(float(1 - op.beta1)),
        new2(float(1 - op.beta2)),
        keep(float(1 - op.lr * op.weight_decay)),
        step(float(op.lr / (1 - std::pow(op.beta1, double(op.step))))),
        root(float(1 / std::sqrt(1 - std::pow(op.beta2, double(op.step))))),
        eps(float(op.eps)) {}
};

template <class T>
void adamw_of(const AdamW& op, Range r) {
  const AdamWScalars s(op);
  float *w = flat<float>(op.w) + r.begin, *m = flat<float>(op.m) + r.begin, *v = flat<float>(op.v) + r.begin;
  const float* grad = flat<float>(op.grad) + r.begin;
  T* value = op.value ? flat<T>(op.value) + r.begin : nullptr;
  for_each(r.size(), [=](auto t, int64_t j) HWY_ATTR {
    const auto g = hn::Mul(hn::Set(t, s.scale), load(t, grad + j));
    const auto mj = hn::MulAdd(hn::Set(t, s.beta1), load(t, m + j), hn::Mul(hn::Set(t, s.new1), g));
    const auto vj = hn::MulAdd(hn::Set(t, s.beta2), load(t, v + j), hn::Mul(hn::Mul(hn::Set(t, s.new2), g), g));
    const auto size = hn::MulAdd(hn::Sqrt(vj), hn::Set(t, s.root), hn::Set(t, s.eps));
    const auto step = hn::Div(hn::Mul(hn::Set(t, s.step), mj), size);
    const auto wj = hn::MulSub(load(t, w + j), hn::Set(t, s.keep), step);
    store(mj, t, m + j);
    store(vj, t, v + j);
    store(wj, t, w + j);
    if (value) store(wj, t, value + j);
  });
}
void adamw(const AdamW& op, Range elements) {
  with_type_of(op.value, [&]<class T>() { adamw_of<T>(op, elements); });
}

template <class T>
void sgd_of(const Sgd& op, Range r) {
  float *w = flat<float>(op.w) + r.begin, *buf = flat<float>(op.buf) + r.begin;
  const float* grad = flat<float>(op.grad) + r.begin;
  T* value = op.value ? flat<T>(op.value) + r.begin : nullptr;
  const float scale = float(op.grad_scale), decay = float(op.weight_decay), lr = float(op.lr);
  const float momentum = float(op.momentum);
  const bool first = op.step == 1;  // buf need not be written before: what it holds may be anything
  for_each(r.size(), [=](auto t, int64_t j) HWY_ATTR {
    const auto old = load(t, w + j);
    auto b = hn::MulAdd(hn::Set(t, decay), old, hn::Mul(hn::Set(t, scale), load(t, grad + j)));
    if (!first) b = hn::MulAdd(hn::Set(t, momentum), load(t, buf + j), b);
    const auto wj = hn::NegMulAdd(hn::Set(t, lr), b, old);
    store(b, t, buf + j);
    store(wj, t, w + j);
    if (value) store(wj, t, value + j);
  });
}
void sgd(const Sgd& op, Range elements) {
  with_type_of(op.value, [&]<class T>() { sgd_of<T>(op, elements); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
HWY_EXPORT(adamw);
HWY_EXPORT(sgd);
void adamw(const AdamW& op, Range elements) { HWY_DYNAMIC_DISPATCH(adamw)(op, elements); }
void sgd(const Sgd& op, Range elements) { HWY_DYNAMIC_DISPATCH(sgd)(op, elements); }
}  // namespace weft::cpu
#endif
