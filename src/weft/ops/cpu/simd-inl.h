// What the vectorised kernels share: loads and stores of f32 and bf16 as f32, loops over rows. Included once for each
// kind of CPU.
#if defined(WEFT_OPS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_OPS_CPU_SIMD_INL_H_
#undef WEFT_OPS_CPU_SIMD_INL_H_
#else
#define WEFT_OPS_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include "weft/tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Lanes = hn::ScalableTag<float>;
using OneLane = hn::CappedTag<float, 1>;
using Floats = hn::Vec<Lanes>;
inline constexpr int64_t kLanes = int64_t(HWY_LANES(float));

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const bf16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}
template <class D, class V>
HWY_INLINE void store(V v, D d, float* p) {
  hn::StoreU(v, d, p);
}
// To nearest even, as bf16(float) does.
template <class D, class V>
HWY_INLINE void store(V v, D, bf16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const hn::Rebind<int32_t, D> i32;
  const auto u = hn::BitCast(d32, v), high = hn::ShiftRight<16>(u);
  const auto even = hn::Add(hn::Set(d32, 0x7fffu), hn::And(high, hn::Set(d32, 1u)));
  const auto rounded = hn::ShiftRight<16>(hn::Add(u, even));
  const auto bits = hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(v)), hn::Or(high, hn::Set(d32, 0x40u)), rounded);
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(i32, bits)), d16, reinterpret_cast<uint16_t*>(p));
}

// f(d, j) for j in steps of the lanes of d, whole vectors first, then single elements: covers [0, n).
template <class F>
HWY_INLINE void for_each(int64_t n, const F& f) {
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) f(Lanes(), j);
  for (; j < n; ++j) f(OneLane(), j);
}

// The sum of f(d, j) over [0, n): the order depends on n alone.
template <class F>
HWY_INLINE float sum_of(int64_t n, const F& f) {
  const Lanes d;
  Floats s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t j = 0;
  for (; j + 4 * kLanes <= n; j += 4 * kLanes) {
    s0 = hn::Add(s0, f(d, j));
    s1 = hn::Add(s1, f(d, j + kLanes));
    s2 = hn::Add(s2, f(d, j + 2 * kLanes));
    s3 = hn::Add(s3, f(d, j + 3 * kLanes));
  }
  for (; j + kLanes <= n; j += kLanes) s0 = hn::Add(s0, f(d, j));
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; j < n; ++j) sum += hn::GetLane(f(OneLane(), j));
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#endif
