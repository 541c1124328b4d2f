// Element types of tensors, and the 16-bit floats as plain structs.
#pragma once
#include <bit>
#include <cstdint>
#include <string_view>

namespace weft {

// f64 lives in the reference backend; f16 is a file format here until fp16 training arrives.
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
  explicit bf16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    if ((u & 0x7fffffffu) > 0x7f800000u)
      bits = uint16_t(u >> 16 | 0x40u);
    else
      bits = uint16_t((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
};

// IEEE half precision: conversions only.
float half_to_float(uint16_t half);
uint16_t float_to_half(float x);  // to nearest even; overflow becomes infinity

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
