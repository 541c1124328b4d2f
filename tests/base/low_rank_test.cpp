#include "weft/base/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace weft {
namespace {

// Number i of n vectors of length 1 at right angles: a cosine transform's.
double basis(int64_t n, int64_t i, int64_t k) {
  const double by = i == 0 ? std::sqrt(1.0 / double(n)) : std::sqrt(2.0 / double(n));
  return by * std::cos(std::numbers::pi * double(i) * (double(k) + 0.5) / double(n));
}

// A matrix with these singular values.
std::vector<float> with_values(int64_t rows, int64_t cols, const std::vector<double>& values) {
  std::vector<float> m(size_t(rows * cols));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) {
      double sum = 0;
      for (size_t s = 0; s < values.size(); ++s)
        sum += values[s] * basis(rows, int64_t(s) + 1, i) * basis(cols, int64_t(s), j);
      m[size_t(i * cols + j)] = float(sum);
    }
  return m;
}

TEST(LowRank, LeavesTheSmallestSingularValues) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{96, 40}, {40, 96}}) {
    const std::vector<float> m = with_values(rows, cols, {10, 5, 2, 1, 0.5});
    for (const auto& [rank, left] : {std::pair<int64_t, double>{1, 30.25}, {3, 1.25}, {4, 0.25}, {5, 0}, {8, 0}}) {
      const LowRank near = nearest_of_rank(m, rows, cols, rank, 1);
      EXPECT_NEAR(squares_left(m, rows, cols, near, 1), left, 1e-5) << rows << ", rank " << rank;
    }
  }
}

// More values than vectors are tried: the largest are found by their size, not because all are there.
TEST(LowRank, FindsTheLargestOfMany) {
  std::vector<double> values;
  for (int i = 0; i < 60; ++i) values.push_back(std::pow(0.9, i));
  double left = 0;
  for (size_t i = 4; i < values.size(); ++i) left += values[i] * values[i];
  const std::vector<float> m = with_values(80, 64, values);
  EXPECT_NEAR(squares_left(m, 80, 64, nearest_of_rank(m, 80, 64, 4, 1), 1), left, 1e-3 * left);
}

TEST(LowRank, TheFactorsHaveOneSizeAndTheLongestFirst) {
  const LowRank near = nearest_of_rank(with_values(48, 32, {9, 4, 1}), 48, 32, 3, 1);
  for (int64_t c = 0; c < 3; ++c) {
    double left = 0, right = 0;
    for (int64_t i = 0; i < 48; ++i) left += std::pow(near.left[size_t(i * 3 + c)], 2);
    for (int64_t j = 0; j < 32; ++j) right += std::pow(near.right[size_t(c * 32 + j)], 2);
    const double value = std::vector<double>{9, 4, 1}[size_t(c)];
    EXPECT_NEAR(left, value, 1e-4);
    EXPECT_NEAR(right, value, 1e-4);
  }
}

TEST(LowRank, IsTheSameOnAnyNumberOfThreadsAndOfNothingNothing) {
  const std::vector<float> m = with_values(50, 30, {3, 2, 1}), zeros(size_t(50 * 30), 0.0f);
  EXPECT_EQ(nearest_of_rank(m, 50, 30, 2, 1).left, nearest_of_rank(m, 50, 30, 2, 3).left);
  EXPECT_EQ(nearest_of_rank(zeros, 50, 30, 2, 1).right, std::vector<double>(60, 0.0));
}

}  // namespace
}  // namespace weft
