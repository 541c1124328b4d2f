// Element types of tensors, and the 16-bit floats as plain structs.
#pragma once
#include <bit>
#include <cstdint>
#include <string_view>

namespace weft {

// f64 lives in the reference backend.
enum class DType : uint8_t { f64, f32, bf16, f16, i32, i64, u8 };

constexpr int64_t size_of(DType t) {
  constexpr int64_t kBytes[] = {8, 4, 2, 2, 4, 8, 1};
  return kBytes[size_t(t)];
}
constexpr std::string_view name_of(DType t) {
  constexpr std::string_view kNames[] = {"f64", "f32", "bf16", "f16", "i32", "i64", "u8"};
  return kNames[size_t(t)];
}

// A bfloat16: the upper half of a float. Rounds to nearest even; NaN stays a (quiet) NaN.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  constexpr explicit bf16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    if ((u & 0x7fffffffu) > 0x7f800000u)
      bits = uint16_t(u >> 16 | 0x40u);
    else
      bits = uint16_t((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
  }
  constexpr explicit operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
};

// IEEE half precision, subnormals included. Rounds to nearest even: 65520 and more become infinity; NaN stays a NaN.
struct f16 {
  uint16_t bits = 0;
  f16() = default;
  constexpr explicit f16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x), magnitude = u & 0x7fffffffu;
    bits = uint16_t((u >> 16 & 0x8000u) | rounded(magnitude));
  }
  constexpr explicit operator float() const {
    const uint32_t sign = uint32_t(bits & 0x8000u) << 16, rest = uint32_t(bits & 0x7fffu) << 13;
    if (rest >= 0x0f800000u) return std::bit_cast<float>(sign | 0x7f800000u | rest);
    if (rest >= 0x00800000u) return std::bit_cast<float>(sign | (rest + (112u << 23)));
    const float value = float(bits & 0x3ffu) * 0x1p-24f;  // zero or subnormal: exact
    return sign != 0 ? -value : value;
  }

 private:
  static constexpr uint32_t rounded(uint32_t magnitude) {
    if (magnitude > 0x7f800000u) return 0x7e00u;
    if (magnitude >= 0x477ff000u) return 0x7c00u;                   // rounds to 65536 or more
    if (magnitude < 0x38800000u) {                                  // below 2^-14: a multiple of 2^-24
      const float scaled = std::bit_cast<float>(magnitude) + 0.5f;  // the addition rounds at 2^-24
      return std::bit_cast<uint32_t>(scaled) - std::bit_cast<uint32_t>(0.5f);
    }
    return (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
  }
};

// The DType of a C++ element type.
template <class T>
struct dtype_of_t;
template <>
struct dtype_of_t<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct dtype_of_t<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of_t<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of_t<f16> {
  static constexpr DType value = DType::f16;
};
template <>
struct dtype_of_t<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct dtype_of_t<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct dtype_of_t<uint8_t> {
  static constexpr DType value = DType::u8;
};
template <class T>
inline constexpr DType dtype_of = dtype_of_t<T>::value;

}  // namespace weft
