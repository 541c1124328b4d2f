// Elementary functions of f32 vectors, within 1-2 units of the last place. NaN stays NaN.
#if defined(WEFT_OPS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_OPS_CPU_MATH_INL_H_
#undef WEFT_OPS_CPU_MATH_INL_H_
#else
#define WEFT_OPS_CPU_MATH_INL_H_
#endif

#include "weft/ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft::cpu {
namespace HWY_NAMESPACE {

// The greater of x and a number, the lesser; NaN where x is: Max and Min of x86 then return their second operand.
template <class D, class V>
HWY_INLINE V at_least(D d, float least, V x) {
#if HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, least)), hn::Set(d, least), x);
#else
  return hn::Max(hn::Set(d, least), x);
#endif
}
template <class D, class V>
HWY_INLINE V at_most(D d, float most, V x) {
#if HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, most)), hn::Set(d, most), x);
#else
  return hn::Min(hn::Set(d, most), x);
#endif
}

// 2^n for n in [-126, 127].
template <class D, class VI>
HWY_INLINE hn::Vec<D> power_of_two(D d, VI n) {
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(hn::RebindToSigned<D>(), 127))));
}

// e^x = 2^n e^r, |r| <= ln(2) / 2; the polynomial is that of Cephes' expf.
template <class D, class V = hn::Vec<D>>
struct Reduced {
  V power, n;  // e^r; n whole
};
template <class D, class V>
HWY_INLINE Reduced<D> reduce_exp(D d, V x) {
  const auto whole = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504088896341f)));
  auto r = hn::NegMulAdd(whole, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(whole, hn::Set(d, -2.12194440e-4f), r);
  auto p = hn::MulAdd(hn::Set(d, 1.9875691500e-4f), r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::MulAdd(hn::Mul(r, r), p, r);
  return {hn::Add(p, hn::Set(d, 1.0f)), whole};
}

// power 2^n, rounded once where it is subnormal, infinite where it is too large; near 1 is the power.
template <class D, class V>
HWY_INLINE V scale_power(D d, const Reduced<D, V>& e) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (hn::MaxLanes(D()) == 16) return V{_mm512_scalef_ps(e.power.raw, e.n.raw)};
#endif
  const auto n = hn::ConvertTo(hn::RebindToSigned<D>(), e.n);
  const auto half = hn::ShiftRight<1>(n);  // in two steps: 2^n may be subnormal, or infinite
  return hn::Mul(hn::Mul(e.power, power_of_two(d, half)), power_of_two(d, hn::Sub(n, half)));
}
template <class D, class V>
HWY_INLINE V exp(D d, V x) {
  return scale_power(d, reduce_exp(d, at_least(d, -104, at_most(d, 89, x))));
}
// exp(x) for x <= 0; a result that would be subnormal becomes about 1e-38.
template <class D, class V>
HWY_INLINE V exp_of_negative(D d, V x) {
  const auto e = reduce_exp(d, at_least(d, -87, x));
#if HWY_TARGET == HWY_AVX3
  return scale_power(d, e);
#else
  return hn::Mul(e.power, power_of_two(d, hn::ConvertTo(hn::RebindToSigned<D>(), e.n)));
#endif
}

// s = 1 / (1 + e^-x), and 1 - s without cancellation (where s is 0, anything finite).
template <class D, class V = hn::Vec<D>>
struct Sigmoid {
  V s, one_minus_s;
};
template <class D, class V>
HWY_INLINE Sigmoid<D> sigmoid(D d, V x) {
  const auto e = exp(d, hn::Neg(x));  // infinite where s is 0
  const auto s = hn::Div(hn::Set(d, 1.0f), hn::Add(hn::Set(d, 1.0f), e));
  return {s, hn::Mul(at_most(d, 1e38f, e), s)};
}

// tanh(x), relative too: near 0 by the polynomial of Cephes' tanhf, else 1 - 2 / (e^(2 |x|) + 1) with the sign of x.
template <class D, class V>
HWY_INLINE V tanh(D d, V x) {
  const auto one = hn::Set(d, 1.0f), size = hn::Abs(x), square = hn::Mul(x, x);
  auto p = hn::MulAdd(hn::Set(d, -5.70498872745e-3f), square, hn::Set(d, 2.06390887954e-2f));
  p = hn::MulAdd(p, square, hn::Set(d, -5.37397155531e-2f));
  p = hn::MulAdd(p, square, hn::Set(d, 1.33314422036e-1f));
  p = hn::MulAdd(p, square, hn::Set(d, -3.33332819422e-1f));
  const auto near = hn::MulAdd(hn::Mul(p, square), x, x);
  const auto e = exp(d, at_most(d, 40, hn::Add(size, size)));
  const auto far = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one)));
  return hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.625f)), near, hn::CopySign(far, x));
}

// The normal distribution Phi(x) and its density phi(x).
// With t = |x| / sqrt(2) and q = (t - 2) / (t + 2): (1 + 2 t) e^(t^2) erfc(t) is a polynomial in q, here the Chebyshev
// fit of degree 9 on 0 <= t <= 10 (relative error 3e-8). The form is Shepherd & Laframboise's (1981).
template <class D, class V = hn::Vec<D>>
struct Gaussian {
  V cumulative, density;
};
template <class D, class V>
HWY_INLINE Gaussian<D> gaussian(D d, V x) {
  constexpr float kFit[] = {-0.0012641194880f, 0.0013277902770f,  0.0086642551540f,
                            -0.0080608251130f, -0.0542142664500f, 0.1640549213000f,
                            -0.1660304204000f, -0.0927639492000f, 1.2769783770000f};
  const auto one = hn::Set(d, 1.0f);
  const auto a = at_most(d, 16, hn::Abs(x));                           // there the tail is 0
  const auto square = hn::Mul(a, a), lost = hn::MulSub(a, a, square);  // a^2 = square + lost
  const auto e = exp(d, hn::Mul(hn::Set(d, -0.5f), square));
  const auto decay = hn::NegMulAdd(e, hn::Mul(hn::Set(d, 0.5f), lost), e);  // e^(-a^2 / 2)
  const auto k = hn::Set(d, 2.82842712475f);
  const auto q = hn::Div(hn::Sub(a, k), hn::Add(a, k));
  auto p = hn::Set(d, -0.0004241225289f);
  for (const float c : kFit) p = hn::MulAdd(p, q, hn::Set(d, c));
  const auto twice_tail = hn::Div(hn::Mul(p, decay), hn::MulAdd(hn::Set(d, 1.41421356237f), a, one));
  const auto tail = hn::Mul(hn::Set(d, 0.5f), twice_tail);
  const auto negative = hn::Lt(x, hn::Zero(d));
  return {hn::IfThenElse(negative, tail, hn::Sub(one, tail)), hn::Mul(decay, hn::Set(d, 0.398942280401f))};
}

}  // namespace HWY_NAMESPACE
}  // namespace weft::cpu
HWY_AFTER_NAMESPACE();

#endif
