// What the vectorised kernels share: loads and stores of f32, bf16 and f16 as f32, loops over rows. Included once for
// each kind of CPU.
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
// The upper halves of 32 bits each.
template <class D, class V>
HWY_INLINE void store_upper_halves(V v, D, uint16_t* p) {
#if HWY_TARGET == HWY_AVX3
  // One instruction, where a shift and Highway's DemoteTo are three.
  if constexpr (hn::MaxLanes(D()) == 16) {
    alignas(64) static constexpr uint16_t kUpper[32] = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
    const __m512i halves = _mm512_permutexvar_epi16(_mm512_load_si512(kUpper), v.raw);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_castsi512_si256(halves));
    return;
  }
#endif
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<int32_t, D> i32;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(i32, hn::ShiftRight<16>(v))), d16, p);
}
// To nearest even, as bf16(float) does.
template <class D, class V>
HWY_INLINE void store(V v, D, bf16* p) {
  const hn::Rebind<uint32_t, D> d32;
  const auto u = hn::BitCast(d32, v), odd = hn::And(hn::ShiftRight<16>(u), hn::Set(d32, 1u));
  const auto rounded = hn::Add(hn::Add(u, hn::Set(d32, 0x7fffu)), odd);
  const auto quiet = hn::Or(u, hn::Set(d32, 0x400000u));
  store_upper_halves(hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(v)), quiet, rounded), d32,
                     reinterpret_cast<uint16_t*>(p));
}

// The CPU's own instructions for f16, where a kind of CPU has them; Highway's stand-ins elsewhere do not round.
#if (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3) && !defined(HWY_DISABLE_F16C)
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const f16* p) {
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
}
template <class D, class V>
HWY_INLINE void store(V v, D, f16* p) {
  const hn::Rebind<hwy::float16_t, D> d16;
  hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(p));
}
#else
// Each lane as f16's operator float and f16(float) do.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const f16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const hn::Rebind<int32_t, D> i32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(d32, 0x8000u)));
  const auto mantissa = hn::And(bits, hn::Set(d32, 0x7fffu)), rest = hn::ShiftLeft<13>(mantissa);
  const auto small = hn::BitCast(d32, hn::Mul(hn::ConvertTo(d, hn::BitCast(i32, mantissa)), hn::Set(d, 0x1p-24f)));
  const auto normal = hn::Add(rest, hn::Set(d32, 112u << 23)), huge = hn::Or(rest, hn::Set(d32, 0x7f800000u));
  const auto at_least = [&](uint32_t least) HWY_ATTR {
    return hn::RebindMask(d32, hn::Gt(hn::BitCast(i32, rest), hn::Set(i32, int32_t(least - 1))));
  };
  const auto value = hn::IfThenElse(at_least(0x00800000u), normal, small);
  return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(at_least(0x0f800000u), huge, value)));
}
template <class D, class V>
HWY_INLINE void store(V v, D d, f16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const hn::Rebind<int32_t, D> i32;
  const auto u = hn::BitCast(d32, v), magnitude = hn::And(u, hn::Set(d32, 0x7fffffffu));
  const auto sign = hn::And(hn::ShiftRight<16>(u), hn::Set(d32, 0x8000u));
  const auto half = hn::Set(d, 0.5f);
  const auto small = hn::Sub(hn::BitCast(d32, hn::Add(hn::BitCast(d, magnitude), half)), hn::BitCast(d32, half));
  const auto even = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d32, 1u));
  const auto normal =
      hn::ShiftRight<13>(hn::Sub(hn::Add(hn::Add(magnitude, hn::Set(d32, 0xfffu)), even), hn::Set(d32, 112u << 23)));
  const auto at_least = [&](uint32_t least) HWY_ATTR {
    return hn::RebindMask(d32, hn::Gt(hn::BitCast(i32, magnitude), hn::Set(i32, int32_t(least - 1))));
  };
  auto value = hn::IfThenElse(at_least(0x38800000u), normal, small);
  value = hn::IfThenElse(at_least(0x477ff000u), hn::Set(d32, 0x7c00u), value);
  value = hn::IfThenElse(at_least(0x7f800001u), hn::Set(d32, 0x7e00u), value);
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(i32, hn::Or(sign, value))), d16, reinterpret_cast<uint16_t*>(p));
}
#endif

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
