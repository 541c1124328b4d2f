#include "weft/gguf/gguf_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "support.h"
#include "weft/tensor/dtype.h"

namespace weft {
namespace {

using Bytes = std::vector<std::byte>;

Bytes zeros(GgufType type) { return Bytes(size_t(info_of(type).bytes)); }

void put_f16(Bytes& bytes, size_t at, float x) {
  const f16 value(x);
  std::memcpy(&bytes[at], &value, 2);
}
float f16_at(const Bytes& bytes, size_t at) {
  f16 value;
  std::memcpy(&value, &bytes[at], 2);
  return float(value);
}

std::vector<float> decoded(GgufType type, const Bytes& bytes) {
  std::vector<float> x(bytes.size() / size_t(info_of(type).bytes) * size_t(info_of(type).block));
  decode_blocks(type, bytes, x);
  return x;
}
Bytes encoded(GgufType type, const std::vector<float>& x) {
  Bytes bytes(x.size() / size_t(info_of(type).block) * size_t(info_of(type).bytes));
  encode_blocks(type, x, bytes);
  return bytes;
}

std::vector<float> normal_numbers(size_t count, float deviation, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> x(count);
  for (float& value : x) value = normal(random);
  return x;
}

// --- blocks made by hand: values follow from the published layout ---

TEST(GgufBlocks, Q8_0IsAScaleAndSignedBytes) {
  Bytes b = zeros(GgufType::q8_0);
  put_f16(b, 0, 0.5f);
  b[2] = std::byte(0x80);  // -128
  b[3] = std::byte(3);
  b[33] = std::byte(0xff);  // -1
  const auto x = decoded(GgufType::q8_0, b);
  EXPECT_EQ(x[0], -64);
  EXPECT_EQ(x[1], 1.5f);
  EXPECT_EQ(x[2], 0);
  EXPECT_EQ(x[31], -0.5f);
}

TEST(GgufBlocks, Q4_0HasNumbersOfTheFirstHalfInLowHalves) {
  Bytes b = zeros(GgufType::q4_0);
  put_f16(b, 0, 2);
  b[2] = std::byte(0x1f);   // number 0: 15, number 16: 1
  b[17] = std::byte(0x80);  // number 15: 0, number 31: 8
  const auto x = decoded(GgufType::q4_0, b);
  EXPECT_EQ(x[0], 2 * (15 - 8));
  EXPECT_EQ(x[16], 2 * (1 - 8));
  EXPECT_EQ(x[15], 2 * (0 - 8));
  EXPECT_EQ(x[31], 0);
}

TEST(GgufBlocks, Q5_0HasTheFifthBitsApart) {
  Bytes b = zeros(GgufType::q5_0);
  put_f16(b, 0, 1);
  b[2] = std::byte(0x02);   // of number 1
  b[5] = std::byte(0x80);   // of number 31
  b[7] = std::byte(0x05);   // numbers 1 and 17: 5, 0
  b[21] = std::byte(0x30);  // numbers 15 and 31: 0, 3
  const auto x = decoded(GgufType::q5_0, b);
  EXPECT_EQ(x[1], 16 + 5 - 16);
  EXPECT_EQ(x[17], -16);
  EXPECT_EQ(x[15], -16);
  EXPECT_EQ(x[31], 16 + 3 - 16);
}

TEST(GgufBlocks, Q4_KPacksScalesAndMinimaInSixBits) {
  Bytes b = zeros(GgufType::q4_k);
  put_f16(b, 0, 1);
  put_f16(b, 2, 0.5f);
  b[4 + 0] = std::byte(3);  // part 0: scale 3, minimum 2
  b[4 + 4] = std::byte(2);
  // Part 5: scale 29 = 0b011101, minimum 38 = 0b100110.
  b[4 + 9] = std::byte(0x6d);
  b[4 + 1] = std::byte(0x40);
  b[4 + 5] = std::byte(0x80);
  b[16 + 0] = std::byte(0x07);        // part 0, number 0
  b[16 + 64 + 31] = std::byte(0xe0);  // part 5, its last number: the high half of bytes 64 to 95
  const auto x = decoded(GgufType::q4_k, b);
  EXPECT_EQ(x[0], 3 * 7 - 0.5f * 2);
  EXPECT_EQ(x[1], -0.5f * 2);
  EXPECT_EQ(x[5 * 32 + 31], 29 * 14 - 0.5f * 38);
  EXPECT_EQ(x[5 * 32], -0.5f * 38);
  EXPECT_EQ(x[32], 0) << "part 1 has neither";
}

TEST(GgufBlocks, Q6_KHasFourLowBitsAndTwoHighOnes) {
  Bytes b = zeros(GgufType::q6_k);
  put_f16(b, 208, 2);
  for (size_t i = 0; i < 16; ++i) b[192 + i] = std::byte(i + 1);
  b[192 + 15] = std::byte(0xfe);      // the scale of the last part: -2
  b[0] = std::byte(0x95);             // numbers 0 and 64: 5, 9
  b[32] = std::byte(0xc3);            // numbers 32 and 96: 3, 12
  b[128] = std::byte(0b11'01'00'10);  // numbers 0, 32, 64, 96: 2, 0, 1, 3
  b[64 + 63] = std::byte(0x70);       // number 255: 7
  b[128 + 63] = std::byte(0x80);      // number 255: 2
  const auto x = decoded(GgufType::q6_k, b);
  EXPECT_EQ(x[0], 2 * 1 * (5 + 32 - 32));
  EXPECT_EQ(x[32], 2 * 3 * (3 - 32));
  EXPECT_EQ(x[64], 2 * 5 * (9 + 16 - 32));
  EXPECT_EQ(x[96], 2 * 7 * (12 + 48 - 32));
  EXPECT_EQ(x[255], 2 * -2 * (7 + 32 - 32));
  EXPECT_EQ(x[1], 2 * 1 * -32);
}

TEST(GgufBlocks, MXFP4IsAnExponentAndNumbersOfFourBits) {
  Bytes b = zeros(GgufType::mxfp4);
  b[0] = std::byte(128);    // 2^1
  b[1] = std::byte(0x71);   // number 0: 0.5, number 16: 6
  b[2] = std::byte(0x0a);   // number 1: -1, number 17: 0
  b[16] = std::byte(0xf3);  // number 15: 1.5, number 31: -6
  const auto x = decoded(GgufType::mxfp4, b);
  EXPECT_EQ(x[0], 1);
  EXPECT_EQ(x[16], 12);
  EXPECT_EQ(x[1], -2);
  EXPECT_EQ(x[17], 0);
  EXPECT_EQ(x[15], 3);
  EXPECT_EQ(x[31], -12);
  EXPECT_EQ(decoded(GgufType::mxfp4, encoded(GgufType::mxfp4, x)), x);
  std::vector<float> near(32, 0.0f);
  near[0] = 5.9f, near[1] = 2.5f, near[2] = -3.5f, near[3] = 0.24f, near[4] = 5;
  const std::vector<float> back = decoded(GgufType::mxfp4, encoded(GgufType::mxfp4, near));
  EXPECT_EQ(std::vector<float>(back.begin(), back.begin() + 5), (std::vector<float>{6, 2, -4, 0, 4}));
}

TEST(GgufBlocks, EncodesABlockByHand) {
  std::vector<float> x(32, 0.0f);
  x[0] = -8, x[1] = 7, x[16] = 3.4f, x[17] = 3.6f;
  const Bytes b = encoded(GgufType::q4_0, x);
  EXPECT_EQ(f16_at(b, 0), 1) << "the largest magnitude is code 0";
  EXPECT_EQ(b[2], std::byte(0xb0)) << "-8 and 3.4";
  EXPECT_EQ(b[3], std::byte(0xcf)) << "7 and 3.6";
  EXPECT_EQ(b[4], std::byte(0x88));
  x[0] = 127, x[1] = -126.4f;
  const Bytes q8 = encoded(GgufType::q8_0, x);
  EXPECT_EQ(f16_at(q8, 0), 1);
  EXPECT_EQ(q8[2], std::byte(127));
  EXPECT_EQ(q8[3], std::byte(0x82)) << "-126";
}

// --- round trips: bounds follow from the format ---

TEST(GgufBlocks, WholeNumbersComeBackAsTheyAre) {
  const auto x = normal_numbers(512, 1, 1);
  EXPECT_EQ(decoded(GgufType::f32, encoded(GgufType::f32, x)), x);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(decoded(GgufType::f16, encoded(GgufType::f16, {x[i]}))[0], float(f16(x[i])));
    EXPECT_EQ(decoded(GgufType::bf16, encoded(GgufType::bf16, {x[i]}))[0], float(bf16(x[i])));
  }
}

// Half a step of codes from -c to c - 1 over the largest magnitude, a whole one at the end that has no code, and the
// rounding of the scale to f16, which codes multiply.
TEST(GgufBlocks, ErrorsOfBlocksOf32AreWithinTheirSteps) {
  for (const float deviation : {1e-2f, 1.0f, 100.0f})
    for (const auto& [type, codes, most] : std::vector<std::tuple<GgufType, float, float>>{
             {GgufType::q8_0, 127.0f, 0.5f}, {GgufType::q5_0, 16.0f, 1.0f}, {GgufType::q4_0, 8.0f, 1.0f}}) {
      const auto x = normal_numbers(32 * 16, deviation, 2);
      const auto back = decoded(type, encoded(type, x));
      for (size_t b = 0; b < x.size(); b += 32) {
        float largest = 0;
        for (size_t i = b; i < b + 32; ++i) largest = std::max(largest, std::abs(x[i]));
        const float step = largest / codes;
        for (size_t i = b; i < b + 32; ++i) {
          const bool at_end = std::abs(x[i]) > largest - step;
          ASSERT_LE(std::abs(back[i] - x[i]), step * (at_end ? most : 0.5f) + largest * 0x1p-10f)
              << name_of(type) << " " << i;
        }
      }
    }
}

// A part of 32 numbers within [low, high] has codes of 15 steps, whose scale and minimum are rounded to 63rds of the
// block's largest. The codes' fit has no larger error, squared and summed, than the plain one this bounds.
TEST(GgufBlocks, ErrorsOfQ4_KAreWithinItsSteps) {
  for (const float shift : {0.0f, 0.7f, -2.0f}) {
    auto x = normal_numbers(256 * 8, 1, 3);
    for (size_t i = 0; i < x.size(); ++i) x[i] = (x[i] + shift) * (i / 32 % 8 == 3 ? 5.0f : 1.0f);
    const Bytes b = encoded(GgufType::q4_k, x);
    const auto back = decoded(GgufType::q4_k, b);
    for (size_t part = 0; part < x.size(); part += 32) {
      const size_t block = part / 256 * 144;
      const float d = f16_at(b, block), dmin = f16_at(b, block + 2);
      const auto [low, high] = std::minmax_element(&x[part], &x[part] + 32);
      const float step = (std::max(0.0f, *high) - std::min(0.0f, *low)) / 15;
      const double bound = step / 2 + 15 * d / 2 + dmin / 2 + 0.01 * step;
      double squares = 0;
      for (size_t i = part; i < part + 32; ++i) squares += double(back[i] - x[i]) * double(back[i] - x[i]);
      ASSERT_LE(std::sqrt(squares / 32), bound) << part;
    }
  }
}

TEST(GgufBlocks, ErrorsOfQ6_KAreWithinItsSteps) {
  auto x = normal_numbers(256 * 8, 1, 4);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= i / 16 % 16 == 5 ? 9.0f : 1.0f;
  const Bytes b = encoded(GgufType::q6_k, x);
  const auto back = decoded(GgufType::q6_k, b);
  for (size_t part = 0; part < x.size(); part += 16) {
    const float d = std::abs(f16_at(b, part / 256 * 210 + 208));
    float largest = 0;
    double squares = 0;
    for (size_t i = part; i < part + 16; ++i) {
      largest = std::max(largest, std::abs(x[i]));
      squares += double(back[i] - x[i]) * double(back[i] - x[i]);
    }
    ASSERT_LE(std::sqrt(squares / 16), largest / 32 / 2 + 32 * d / 2 + 0.01 * largest / 32) << part;
  }
}

TEST(GgufBlocks, MoreBitsAreNearer) {
  const auto x = normal_numbers(256 * 64, 0.02f, 5);
  std::vector<double> errors;
  for (const GgufType type : {GgufType::q8_0, GgufType::q6_k, GgufType::q5_0, GgufType::q4_k, GgufType::q4_0}) {
    const auto back = decoded(type, encoded(type, x));
    double squares = 0;
    for (size_t i = 0; i < x.size(); ++i) squares += double(back[i] - x[i]) * double(back[i] - x[i]);
    errors.push_back(std::sqrt(squares / double(x.size())) / 0.02);
  }
  EXPECT_TRUE(std::is_sorted(errors.begin(), errors.begin() + 4)) << ::testing::PrintToString(errors);
  EXPECT_LT(errors[2], errors[4]);
  // Steps of a part of 32 (16) normal numbers, whose largest is about 2.1 (1.8), over the square root of 12.
  EXPECT_LT(errors[0], 1.2 * 2.1 / 127 / std::sqrt(12.0));
  EXPECT_LT(errors[1], 1.2 * 1.8 / 32 / std::sqrt(12.0));
  EXPECT_LT(errors[3], 1.2 * 2 * 2.1 / 15 / std::sqrt(12.0));
}

TEST(GgufBlocks, ZerosAndTinyNumbersAreZeros) {
  for (const GgufTypeInfo& t : kGgufTypes) {
    if (t.block == 1) continue;
    std::vector<float> x(size_t(t.block), 0.0f);
    EXPECT_EQ(decoded(t.type, encoded(t.type, x)), x) << t.name;
    x[3] = 1e-42f, x[7] = -1e-44f;
    for (const float back : decoded(t.type, encoded(t.type, x))) EXPECT_EQ(back, 0) << t.name;
    std::fill(x.begin(), x.end(), 65504.0f);
    for (const float back : decoded(t.type, encoded(t.type, x))) EXPECT_TRUE(std::isfinite(back)) << t.name;
  }
}

}  // namespace
}  // namespace weft
