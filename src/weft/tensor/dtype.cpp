#include "weft/tensor/dtype.h"

namespace weft {

float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000u) << 16;
  const uint32_t exponent = half >> 10 & 0x1fu, mantissa = half & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float value = float(mantissa) * 0x1p-24f;  // zero or subnormal: exact
  return sign != 0 ? -value : value;
}

uint16_t float_to_half(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint16_t sign = uint16_t(u >> 16 & 0x8000u);
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;            // rounds to 65536 or more
  if (magnitude < 0x38800000u) {                                  // below 2^-14: a multiple of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) + 0.5f;  // the addition rounds at 2^-24
    return sign | uint16_t(std::bit_cast<uint32_t>(scaled) - std::bit_cast<uint32_t>(0.5f));
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  return sign | uint16_t((rounded - (112u << 23)) >> 13);
}

}  // namespace weft
