#include "weft/gguf/gguf_blocks.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "weft/base/error.h"
#include "weft/gguf/gguf_k_blocks.h"
#include "weft/tensor/dtype.h"

namespace weft {
namespace {

constexpr int kBlock = 32;  // numbers of Q8_0, Q5_0, Q4_0 and MXFP4

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

float largest_of(const float* x) {  // with its sign
  return *std::max_element(x, x + kBlock, [](float a, float b) { return std::abs(a) < std::abs(b); });
}
// 0 where it would not be finite: such a d is 0 in f16, and stands for zeros.
float inverse_of(float d) { return std::abs(d) < FLT_MIN ? 0.0f : 1 / d; }

// --- Q8_0: an f16 scale d, then 32 signed bytes q; x = d q ---

void decode_q8_0(const std::byte* from, float* x) {
  const auto d = float(load<f16>(from));
  for (int i = 0; i < kBlock; ++i) x[i] = d * float(int8_t(from[2 + i]));
}
void encode_q8_0(const float* x, std::byte* to) {
  const float d = std::abs(largest_of(x)) / 127, inverse = inverse_of(d);
  store(to, f16(d));
  for (int i = 0; i < kBlock; ++i) to[2 + i] = std::byte(int8_t(std::round(x[i] * inverse)));
}

// --- Q4_0: an f16 scale d, then 16 bytes; byte i has q of number i in its low half, of i + 16 in its high; x = d (q -
// 8)

void decode_q4_0(const std::byte* from, float* x) {
  const auto d = float(load<f16>(from));
  for (int i = 0; i < kBlock / 2; ++i) {
    const auto both = int(from[2 + i]);
    x[i] = d * float((both & 15) - 8);
    x[i + 16] = d * float((both >> 4) - 8);
  }
}
// The number of the largest magnitude becomes -8 exactly: the side that has one code more.
int code_of(float x, float inverse, int half) { return std::min(2 * half - 1, int(x * inverse + float(half) + 0.5f)); }
void encode_q4_0(const float* x, std::byte* to) {
  const float d = largest_of(x) / -8, inverse = inverse_of(d);
  store(to, f16(d));
  for (int i = 0; i < kBlock / 2; ++i)
    to[2 + i] = std::byte(code_of(x[i], inverse, 8) | code_of(x[i + 16], inverse, 8) << 4);
}

// --- Q5_0: an f16 scale d, the fifth bit of each q as 4 bytes, the others as in Q4_0; x = d (q - 16) ---

void decode_q5_0(const std::byte* from, float* x) {
  const auto d = float(load<f16>(from));
  const auto fifth = load<uint32_t>(from + 2);
  for (int i = 0; i < kBlock; ++i) {
    const int low = int(from[6 + i % 16]) >> (i < 16 ? 0 : 4) & 15;
    x[i] = d * float((low | int(fifth >> i & 1) << 4) - 16);
  }
}
void encode_q5_0(const float* x, std::byte* to) {
  const float d = largest_of(x) / -16, inverse = inverse_of(d);
  uint32_t fifth = 0;
  std::fill(to + 6, to + 22, std::byte(0));
  for (int i = 0; i < kBlock; ++i) {
    const int code = code_of(x[i], inverse, 16);
    fifth |= uint32_t(code >> 4) << i;
    to[6 + i % 16] |= std::byte((code & 15) << (i < 16 ? 0 : 4));
  }
  store(to, f16(d));
  store(to + 2, fifth);
}

// --- MXFP4: a byte e, then 16 bytes as in Q4_0, each half a number q of sign, two bits of exponent and one of
// fraction; x = 2^(e - 127) q. Open Compute Project, Microscaling Formats 1.0, 2023 ---

constexpr float kHalves[] = {0, 1, 2, 3, 4, 6, 8, 12};  // twice what codes without the sign are
constexpr int kBias = 127;

void decode_mxfp4(const std::byte* from, float* x) {
  const auto value = [&](int code) {
    return std::ldexp(code < 8 ? kHalves[code] : -kHalves[code - 8], int(from[0]) - kBias - 1);
  };
  for (int i = 0; i < kBlock / 2; ++i) {
    x[i] = value(int(from[1 + i]) & 15);
    x[i + 16] = value(int(from[1 + i]) >> 4);
  }
}
// The number of the largest magnitude has the largest exponent; a half is rounded to the even code.
int code_of_mxfp4(float halves) {
  int code = 0;
  for (int next = 1; next < 8; ++next) {
    const float middle = (kHalves[next - 1] + kHalves[next]) / 2;
    if (std::abs(halves) > middle || (std::abs(halves) == middle && next % 2 == 0)) code = next;
  }
  return std::signbit(halves) ? code + 8 : code;
}
void encode_mxfp4(const float* x, std::byte* to) {
  const float largest = std::abs(largest_of(x));
  const int e = largest > 0 ? std::clamp(std::ilogb(largest) - 2, -kBias, kBias) : -kBias;
  to[0] = std::byte(e + kBias);
  for (int i = 0; i < kBlock / 2; ++i)
    to[1 + i] = std::byte(code_of_mxfp4(std::ldexp(x[i], 1 - e)) | code_of_mxfp4(std::ldexp(x[i + 16], 1 - e)) << 4);
}

using Decode = void (*)(const std::byte*, float*, int64_t blocks);
using Encode = void (*)(const float*, std::byte*, int64_t blocks);

struct Coder {
  Decode decode;
  Encode encode;
};

template <class T>
constexpr Coder coder_of_numbers() {
  return {[](const std::byte* from, float* x, int64_t count) {
            for (int64_t i = 0; i < count; ++i) x[i] = float(load<T>(from + i * int64_t(sizeof(T))));
          },
          [](const float* x, std::byte* to, int64_t count) {
            for (int64_t i = 0; i < count; ++i) store(to + i * int64_t(sizeof(T)), T(x[i]));
          }};
}

// A coder made of functions that take one block.
template <GgufType type, void (*decode)(const std::byte*, float*), void (*encode)(const float*, std::byte*)>
constexpr Coder coder_of_blocks() {
  return {[](const std::byte* from, float* x, int64_t blocks) {
            for (int64_t b = 0; b < blocks; ++b) decode(from + b * info_of(type).bytes, x + b * info_of(type).block);
          },
          [](const float* x, std::byte* to, int64_t blocks) {
            for (int64_t b = 0; b < blocks; ++b) encode(x + b * info_of(type).block, to + b * info_of(type).bytes);
          }};
}

Coder coder_of(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return coder_of_numbers<float>();
    case GgufType::f16:
      return coder_of_numbers<f16>();
    case GgufType::bf16:
      return coder_of_numbers<bf16>();
    case GgufType::q8_0:
      return coder_of_blocks<GgufType::q8_0, decode_q8_0, encode_q8_0>();
    case GgufType::q5_0:
      return coder_of_blocks<GgufType::q5_0, decode_q5_0, encode_q5_0>();
    case GgufType::q4_0:
      return coder_of_blocks<GgufType::q4_0, decode_q4_0, encode_q4_0>();
    case GgufType::mxfp4:
      return coder_of_blocks<GgufType::mxfp4, decode_mxfp4, encode_mxfp4>();
    case GgufType::q4_k:
      return coder_of_blocks<GgufType::q4_k, decode_q4_k, encode_q4_k>();
    case GgufType::q6_k:
      return coder_of_blocks<GgufType::q6_k, decode_q6_k, encode_q6_k>();
  }
  WEFT_CHECK(false, "GGUF type {}", uint32_t(type));
}

int64_t blocks_of(const GgufTypeInfo& t, size_t numbers, size_t bytes) {
  const int64_t blocks = int64_t(numbers) / t.block;
  WEFT_CHECK(int64_t(numbers) == blocks * t.block && int64_t(bytes) == blocks * t.bytes, "{} numbers in {} bytes of {}",
             numbers, bytes, t.name);
  return blocks;
}

}  // namespace

void decode_blocks(GgufType type, std::span<const std::byte> from, std::span<float> to) {
  coder_of(type).decode(from.data(), to.data(), blocks_of(info_of(type), to.size(), from.size()));
}

void encode_blocks(GgufType type, std::span<const float> from, std::span<std::byte> to) {
  coder_of(type).encode(from.data(), to.data(), blocks_of(info_of(type), from.size(), to.size()));
}

}  // namespace weft
