#include "weft/ops/cpu/latent_keys.h"

#include <algorithm>

#include "weft/ops/cpu/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/ops/cpu/latent_keys.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void latent_keys_of(const LatentKeys& op, Range range) {
  const auto kv = rows_of<const T>(op.kv), shared = rows_of<const T>(op.shared);
  const auto k = rows_of<T>(op.k), v = rows_of<T>(op.v);
  const int64_t r = shared.cols, u = v.cols / op.heads, n = k.cols / op.heads - r;
  for (int64_t i = range.begin; i < range.end; ++i) {
    for (int64_t h = 0; h < op.heads; ++h) {
      const T* from = kv[i] + h * (n + u);
      std::copy_n(from, n, k[i] + h * (n + r));
      std::copy_n(shared[i], r, k[i] + h * (n + r) + n);
      std::copy_n(from + n, u, v[i] + h * u);
    }
  }
}
void latent_keys(const LatentKeys& op, Range rows) {
  with_type_of(op.kv, [&]<class T>() { latent_keys_of<T>(op, rows); });
}

template <class T>
void latent_keys_backward_of(const LatentKeysBackward& op, Range range) {
  const auto dk = rows_of<const T>(op.dk), dv = rows_of<const T>(op.dv);
  const auto dkv = rows_of<T>(op.dkv), dshared = rows_of<T>(op.dshared);
  const int64_t r = dshared.cols, u = dv.cols / op.heads, n = dk.cols / op.heads - r;
  for (int64_t i = range.begin; i < range.end; ++i) {
    for (int64_t h = 0; h < op.heads; ++h) {
      T* to = dkv[i] + h * (n + u);
      std::copy_n(dk[i] + h * (n + r), n, to);
      std::copy_n(dv[i] + h * u, u, to + n);
    }
    const T *first = dk[i] + n, *end = dk[i] + dk.cols;
    for_each(r, [=, to = dshared[i]](auto t, int64_t j) HWY_ATTR {
      auto sum = load(t, first + j);
      for (const T* key = first + n + r; key < end; key += n + r) sum = hn::Add(sum, load(t, key + j));
      store(sum, t, to + j);
    });
  }
}
void latent_keys_backward(const LatentKeysBackward& op, Range rows) {
  with_type_of(op.dk, [&]<class T>() { latent_keys_backward_of<T>(op, rows); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::cpu {
HWY_EXPORT(latent_keys);
HWY_EXPORT(latent_keys_backward);
void latent_keys(const LatentKeys& op, Range rows) { HWY_DYNAMIC_DISPATCH(latent_keys)(op, rows); }
void latent_keys_backward(const LatentKeysBackward& op, Range rows) {
  HWY_DYNAMIC_DISPATCH(latent_keys_backward)(op, rows);
}
}  // namespace weft::cpu
#endif
