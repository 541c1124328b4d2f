// GPTQ beside what its paper derives it from: each column is rounded where the exact solution has put it.
#include "weft/models/gptq.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "support.h"
#include "weft/base/error.h"

namespace weft {
namespace {

struct Calibration {
  int64_t rows, cols;
  std::vector<float> weights;   // [rows, cols]
  std::vector<float> products;  // [cols, cols]
  double added = 0;             // to their diagonal
};

// Inputs that go together: each is mostly a mixture of a few others.
Calibration random_calibration(int64_t rows, int64_t cols, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const int64_t inputs = 4 * cols, causes = cols / 4;
  Calibration c{rows, cols, std::vector<float>(size_t(rows * cols)), std::vector<float>(size_t(cols * cols))};
  for (float& w : c.weights) w = float(normal(random));
  std::vector<double> mixture(size_t(causes * cols));
  for (double& m : mixture) m = normal(random);
  std::vector<double> sums(size_t(cols * cols));
  for (int64_t t = 0; t < inputs; ++t) {
    std::vector<double> x(static_cast<size_t>(cols));
    for (double& v : x) v = 0.2 * normal(random);
    for (int64_t k = 0; k < causes; ++k) {
      const double by = normal(random);
      for (int64_t j = 0; j < cols; ++j) x[size_t(j)] += by * mixture[size_t(k * cols + j)];
    }
    for (int64_t i = 0; i < cols; ++i)
      for (int64_t j = 0; j < cols; ++j) sums[size_t(i * cols + j)] += x[size_t(i)] * x[size_t(j)];
  }
  std::transform(sums.begin(), sums.end(), c.products.begin(), [](double s) { return float(s); });
  for (int64_t j = 0; j < cols; ++j) c.added += kGptqDamping * double(c.products[size_t(j * cols + j)]) / double(cols);
  return c;
}

// H of columns a and b, as it is damped.
double damped(const Calibration& c, int64_t a, int64_t b) {
  return double(c.products[size_t(a * c.cols + b)]) + (a == b ? c.added : 0);
}

// x of A x = b by elimination; A [n, n].
std::vector<double> solved(std::vector<std::vector<double>> a, std::vector<double> b) {
  const size_t n = b.size();
  for (size_t k = 0; k < n; ++k) {
    size_t pivot = k;
    for (size_t i = k; i < n; ++i)
      if (std::abs(a[i][k]) > std::abs(a[pivot][k])) pivot = i;
    std::swap(a[k], a[pivot]);
    std::swap(b[k], b[pivot]);
    for (size_t i = k + 1; i < n; ++i) {
      const double by = a[i][k] / a[k][k];
      for (size_t j = k; j < n; ++j) a[i][j] -= by * a[k][j];
      b[i] -= by * b[k];
    }
  }
  for (size_t k = n; k-- > 0;) {
    for (size_t j = k + 1; j < n; ++j) b[k] -= a[k][j] * b[j];
    b[k] /= a[k][k];
  }
  return b;
}

// What is best for the columns from place `from` of the order on, where those before are off by `off`: the least of
// (off, d) H (off, d)^T over d, that is d H_FF = -off H_QF. Added to their weights.
std::vector<double> best_rest(const Calibration& c, const std::vector<int64_t>& order, int64_t row, size_t from,
                              const std::vector<double>& off) {
  std::vector<std::vector<double>> h;
  std::vector<double> right;
  for (size_t i = from; i < order.size(); ++i) {
    h.emplace_back();
    for (size_t j = from; j < order.size(); ++j) h.back().push_back(damped(c, order[i], order[j]));
    right.push_back(0);
    for (size_t q = 0; q < from; ++q) right.back() -= off[q] * damped(c, order[q], order[i]);
  }
  std::vector<double> rest = solved(h, right);
  for (size_t i = 0; i < rest.size(); ++i) rest[i] += double(c.weights[size_t(row * c.cols + order[from + i])]);
  return rest;
}

// The scale of a group in 4 bits: of 16, the one with the least squared error.
float scale_in_4_bits(const std::vector<double>& group) {
  double most = 0, least = std::numeric_limits<double>::infinity();
  for (const double x : group) most = std::max(most, std::abs(x));
  float best = 0;
  for (int k = 0; k < 16; ++k) {
    const auto scale = float(f16(float(most / 7.5 * (1 - 0.02 * k))));
    double error = 0;
    for (const double x : group)
      error += std::pow(x - double(scale) * std::clamp(std::nearbyint(x / double(scale)), -8.0, 7.0), 2);
    if (error < least) least = error, best = scale;
  }
  return best;
}

void expect_exact(const Calibration& c, const GptqMatrix& got, const std::vector<int64_t>& order, int64_t group_size) {
  for (int64_t row = 0; row < c.rows; ++row) {
    std::vector<double> off;
    float scale = 0;
    for (size_t k = 0; k < order.size(); ++k) {
      std::vector<double> rest = best_rest(c, order, row, k, off);
      const double x = rest[0];
      if (int64_t(k) % group_size == 0) {
        rest.resize(std::min(rest.size(), size_t(group_size)));
        scale = scale_in_4_bits(rest);
      }
      const int64_t col = order[k], group = int64_t(k) / group_size;
      EXPECT_EQ(got.group_of[size_t(col)], group);
      EXPECT_EQ(float(got.scales[size_t(group * c.rows + row)]), scale);
      const int code = int(std::clamp(std::nearbyint(x / double(scale)), -8.0, 7.0)) + 8;
      EXPECT_EQ(got.codes[size_t(row * c.cols + col)], code) << "row " << row << ", column " << col;
      off.push_back(double(scale) * (code - 8) - double(c.weights[size_t(row * c.cols + col)]));
    }
  }
}

TEST(Gptq, RoundsEachColumnWhereTheExactSolutionHasPutIt) {
  const Calibration c = random_calibration(3, 12, 1);
  const GptqFormat format{.bits = 4, .group_size = 4};
  const GptqCosts costs = gptq_costs(c.products, c.cols, false, 1);
  std::vector<int64_t> order(12);
  std::iota(order.begin(), order.end(), 0);
  EXPECT_EQ(costs.order, order);
  expect_exact(c, gptq_rounded(c.weights, costs, format, "w", 1), order, 4);
}

TEST(Gptq, BeginsWithTheLargestInputsWhereItIsAsked) {
  const Calibration c = random_calibration(2, 12, 2);
  const GptqCosts costs = gptq_costs(c.products, c.cols, true, 1);
  std::vector<int64_t> order(12);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return damped(c, a, a) > damped(c, b, b); });
  EXPECT_EQ(costs.order, order);
  expect_exact(c, gptq_rounded(c.weights, costs, {.bits = 4, .group_size = 6, .by_size = true}, "w", 1), order, 6);
}

// More columns than a block has: groups that are no whole blocks, larger ones that begin where no block does, and all
// of a row as one.
TEST(Gptq, IsExactOverBlocksOfColumns) {
  for (const auto& [cols, group] : std::vector<std::pair<int64_t, int64_t>>{{80, 20}, {80, 0}, {140, 72}}) {
    const Calibration c = random_calibration(1, cols, 3);
    const GptqCosts costs = gptq_costs(c.products, cols, false, 1);
    expect_exact(c, gptq_rounded(c.weights, costs, {.bits = 4, .group_size = group}, "w", 1), costs.order,
                 group == 0 ? cols : group);
  }
}

TEST(Gptq, TheFactorIsThatOfTheInverse) {
  const Calibration c = random_calibration(1, 150, 4);
  const int64_t n = c.cols;
  for (const int threads : {1, 3}) {
    const GptqCosts costs = gptq_costs(c.products, n, true, threads);
    double worst = 0;
    // U H U^T = I, as H^-1 = U^T U and U is square.
    for (int64_t i = 0; i < n; i += 13)
      for (int64_t j = 0; j < n; j += 11) {
        double sum = 0;
        for (int64_t a = i; a < n; ++a)
          for (int64_t b = j; b < n; ++b)
            sum += costs.factor[size_t(i * n + a)] * damped(c, costs.order[size_t(a)], costs.order[size_t(b)]) *
                   costs.factor[size_t(j * n + b)];
        worst = std::max(worst, std::abs(sum - (i == j ? 1 : 0)));
      }
    EXPECT_LT(worst, 1e-9);
  }
}

double squared_change(const Calibration& c, const GptqMatrix& m) {
  const std::vector<float> numbers = numbers_of(m);
  double sum = 0;
  for (int64_t row = 0; row < c.rows; ++row) {
    const auto off = [&](int64_t j) {
      return double(numbers[size_t(row * c.cols + j)]) - double(c.weights[size_t(row * c.cols + j)]);
    };
    for (int64_t i = 0; i < c.cols; ++i)
      for (int64_t j = 0; j < c.cols; ++j) sum += off(i) * double(c.products[size_t(i * c.cols + j)]) * off(j);
  }
  return sum;
}

TEST(Gptq, ChangesProductsLessThanRoundingDoesWhereInputsGoTogether) {
  const Calibration c = random_calibration(24, 96, 5);
  for (const int bits : {4, 8}) {
    const GptqFormat format{.bits = bits, .group_size = 32};
    const double rounded = squared_change(c, gptq_rounded(c.weights, equal_gptq_costs(c.cols), format, "w", 1));
    const double plain =
        squared_change(c, gptq_rounded(c.weights, gptq_costs(c.products, c.cols, false, 1), format, "w", 1));
    EXPECT_LT(plain, 0.5 * rounded) << bits;
    EXPECT_LT(squared_change(c, gptq_rounded(c.weights, gptq_costs(c.products, c.cols, true, 1), format, "w", 1)),
              0.5 * rounded)
        << bits;
  }
}

TEST(Gptq, WithoutCostsEachNumberGoesToTheNearestCode) {
  const Calibration c = random_calibration(5, 64, 6);
  const GptqMatrix m = gptq_rounded(c.weights, equal_gptq_costs(64), {.bits = 8, .group_size = 32}, "w", 2);
  const std::vector<float> numbers = numbers_of(m);
  for (int64_t i = 0; i < 5; ++i)
    for (int64_t j = 0; j < 64; ++j) {
      const auto at = size_t(i * 64 + j);
      const float scale = float(m.scales[size_t(j / 32 * 5 + i)]);
      const bool inside = m.codes[at] > 0 && m.codes[at] < 255;
      EXPECT_LE(std::abs(numbers[at] - c.weights[at]), (inside ? 0.5001F : 5) * scale);
    }
}

TEST(Gptq, HasTheSameCodesOnAnyNumberOfThreads) {
  const Calibration c = random_calibration(40, 160, 7);
  const GptqFormat format{.bits = 4, .group_size = 32};
  const GptqMatrix one = gptq_rounded(c.weights, gptq_costs(c.products, 160, false, 1), format, "w", 1);
  const GptqMatrix three = gptq_rounded(c.weights, gptq_costs(c.products, 160, false, 3), format, "w", 3);
  EXPECT_EQ(one.codes, three.codes);
}

// A matrix of zeros, columns whose input was always 0, and inputs that were all 0.
TEST(Gptq, BearsWhatSaysNothing) {
  Calibration c = random_calibration(2, 32, 8);
  for (int64_t j = 0; j < 32; ++j) c.products[size_t(5 * 32 + j)] = c.products[size_t(j * 32 + 5)] = 0;
  const GptqFormat format{.bits = 4, .group_size = 32};
  const GptqMatrix m = gptq_rounded(c.weights, gptq_costs(c.products, 32, false, 1), format, "w", 1);
  EXPECT_LE(std::abs(numbers_of(m)[5] - c.weights[5]), float(m.scales[0]));
  for (const float x :
       numbers_of(gptq_rounded(std::vector<float>(64), gptq_costs(c.products, 32, true, 1), format, "w", 1)))
    EXPECT_EQ(x, 0);
  const GptqMatrix of_zeros =
      gptq_rounded(c.weights, gptq_costs(std::vector<float>(32 * 32), 32, false, 1), format, "w", 1);
  EXPECT_EQ(of_zeros.codes, gptq_rounded(c.weights, equal_gptq_costs(32), format, "w", 1).codes);
}

TEST(Gptq, RefusesWhatIsNotFinite) {
  Calibration c = random_calibration(1, 32, 9);
  const GptqFormat format{.bits = 4, .group_size = 32};
  for (const float x : {std::numeric_limits<float>::infinity(), std::nanf(""), 1e5F}) {
    std::vector<float> weights = c.weights;
    weights[3] = x;
    EXPECT_SAYS(
        testing::error_of<NumericsError>([&] { gptq_rounded(weights, equal_gptq_costs(32), format, "blocks.0.w", 1); }),
        "blocks.0.w holds");
  }
  c.products[40] = std::nanf("");
  EXPECT_SAYS(testing::error_of<NumericsError>([&] { gptq_costs(c.products, 32, false, 1); }), "not finite");
}

}  // namespace
}  // namespace weft
