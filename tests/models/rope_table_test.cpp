#include "weft/models/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace weft {
namespace {

// By the formula, for theta 10000 and 16 numbers: pair i turns 10^(-i/2) radians a position.
TEST(RopeTable, YarnSlowsThePairsThatTurnLittle) {
  const RopeSpec spec{.theta = 10000,
                      .scaling = RopeSpec::Scaling::yarn,
                      .factor = 4,
                      .original_positions = 64,
                      .beta_fast = 8,
                      .beta_slow = 1};
  const auto pair_of = [](double turns) { return std::log10(64 / (2 * std::numbers::pi * turns)) * 2; };
  for (const bool truncate : {true, false}) {
    RopeSpec s = spec;
    s.truncate = truncate;
    const double low = std::max(0.0, truncate ? std::floor(pair_of(8)) : pair_of(8));
    const double high = truncate ? std::ceil(pair_of(1)) : pair_of(1);
    const std::vector<double> frequencies = rope_frequencies(s, 16, 100);
    ASSERT_EQ(frequencies.size(), 8u);
    for (int i = 0; i < 8; ++i) {
      const double kept = std::pow(10, -i / 2.0), slowed = std::clamp((i - low) / (high - low), 0.0, 1.0);
      EXPECT_NEAR(frequencies[size_t(i)], kept * (1 - slowed) + kept / 4 * slowed, 1e-15) << i << truncate;
    }
    EXPECT_EQ(frequencies[0], 1);
    EXPECT_NEAR(frequencies[7], std::pow(10, -3.5) / 4, 1e-18);
  }
}

TEST(RopeTable, LongRopeTakesTheLongListBeyondTheOriginalLengthAlone) {
  const RopeSpec spec{.theta = 100,
                      .scaling = RopeSpec::Scaling::longrope,
                      .original_positions = 8,
                      .short_factors = {1, 2},
                      .long_factors = {4, 5}};
  EXPECT_EQ(rope_frequencies(spec, 4, 8), (std::vector<double>{1, 0.1 / 2}));
  EXPECT_EQ(rope_frequencies(spec, 4, 9), (std::vector<double>{0.25, 0.1 / 5}));
}

TEST(RopeTable, CosinesAndSinesHaveTheMagnitude) {
  std::vector<double> numbers(3 * 4);
  const Tensor table(numbers.data(), DType::f64, {3, 4});
  fill_rope_table({.theta = 100, .magnitude = 1.5}, table, *host_memory());
  EXPECT_EQ(numbers[0], 1.5);
  EXPECT_EQ(numbers[2], 0);
  EXPECT_NEAR(numbers[8 + 1], 1.5 * std::cos(0.2), 1e-15);
  EXPECT_NEAR(numbers[8 + 3], 1.5 * std::sin(0.2), 1e-15);
}

}  // namespace
}  // namespace weft
