#include "weft/comm/rank_sum.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace weft {
namespace {

// 2048 + 1 and 2048 + 1 + 1 are 2048 in f16 after each addition; rounded once, the latter is 2050.
TEST(RankSum, AddsSixteenBitsInF32AndRoundsOnce) {
  const std::vector<f16> large(1500, f16(2048.0f)), one(1500, f16(1.0f));
  std::vector<f16> out(1500);
  const std::array<const void*, 3> three{large.data(), one.data(), one.data()};
  sum_ranks(three, DType::f16, 1500, out.data());
  for (const f16& x : out) ASSERT_EQ(float(x), 2050.0f);
  const std::array<const void*, 2> two{large.data(), one.data()};
  sum_ranks(two, DType::f16, 1500, out.data());
  for (const f16& x : out) ASSERT_EQ(float(x), 2048.0f);
}

TEST(RankSum, InPlaceIsTheSameSumForEveryRank) {
  for (const size_t ranks : {1, 2, 3, 5}) {
    constexpr size_t kSize = 2500;  // of several runs
    std::vector<std::vector<float>> x(ranks, std::vector<float>(kSize));
    std::vector<const void*> from;
    std::vector<void*> places;
    for (size_t r = 0; r < ranks; ++r)
      for (size_t i = 0; i < kSize; ++i) x[r][i] = 1.0f / float(1 + r + i);
    for (auto& v : x) from.push_back(v.data()), places.push_back(v.data());
    std::vector<float> sum(kSize);
    sum_ranks(from, DType::f32, kSize, sum.data());
    sum_ranks_in_place(places, DType::f32, kSize);
    for (const auto& v : x) EXPECT_EQ(v, sum);
  }
}

TEST(RankSum, AnOverflowOfF16IsInfinite) {
  const std::vector<f16> x(3, f16(60000.0f));
  std::vector<f16> out(3);
  sum_ranks(std::array<const void*, 2>{x.data(), x.data()}, DType::f16, 3, out.data());
  EXPECT_EQ(out[2].bits, f16(65536.0f).bits);
}

}  // namespace
}  // namespace weft
