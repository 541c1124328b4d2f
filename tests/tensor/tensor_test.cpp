#include "weft/tensor/tensor.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace weft {
namespace {

TEST(DType, EveryHalfSurvivesTheWayThroughFloat) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    f16 half;
    half.bits = uint16_t(h);
    const float f = float(half);
    if (std::isnan(f))
      EXPECT_TRUE(std::isnan(float(f16(f))));
    else
      EXPECT_EQ(f16(f).bits, h);
  }
}

TEST(DType, HalfRoundsToNearestEven) {
  EXPECT_EQ(f16(1.0f + 0x1p-11f).bits, 0x3c00);      // half way: to even
  EXPECT_EQ(f16(1.0f + 3 * 0x1p-11f).bits, 0x3c02);  // half way: to even
  EXPECT_EQ(f16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(f16(65520.0f).bits, 0x7c00);  // infinity
  EXPECT_EQ(f16(0x1p-25f).bits, 0x0000);
  EXPECT_EQ(f16(std::nextafter(0x1p-25f, 1.0f)).bits, 0x0001);
  EXPECT_EQ(f16(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
  EXPECT_TRUE(std::isnan(float(f16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(DType, Bf16RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(bf16(1.0f + 0x1p-8f).bits, 0x3f80);
  EXPECT_EQ(bf16(1.0f + 3 * 0x1p-8f).bits, 0x3f82);
  EXPECT_TRUE(std::isnan(float(bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Tensor, ColumnsOfAMatrixAreATensorWithGaps) {
  std::array<float, 6> x{0, 1, 2, 3, 4, 5};
  Tensor t(x.data(), DType::f32, {2, 3});
  Tensor c = t.slice_cols(1, 2);
  EXPECT_EQ(c.as<float>()[c.row_stride], 4);
  EXPECT_FALSE(c.contiguous());
  EXPECT_THROW(c.reshape({4}), CheckFailure);
  EXPECT_THROW(t.slice_rows(1, 2), CheckFailure);
  EXPECT_THROW(t.as<double>(), CheckFailure);
}

TEST(Placement, TheGradientLivesOnTheDual) {
  EXPECT_EQ(weights(Spmd::Shard0).dual(), (Placement{Spmd::Partial, Spmd::Partial, Spmd::Shard0}));
  for (Spmd s : {Spmd::None, Spmd::Replicate, Spmd::Invariant, Spmd::Shard0, Spmd::Shard1, Spmd::Partial})
    EXPECT_EQ(dual(dual(s)), s);
}

}  // namespace
}  // namespace weft
