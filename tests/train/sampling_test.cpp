// Choosing tokens: the likeliest, and draws as often as their probabilities say.
#include "weft/train/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "weft/base/error.h"

namespace weft {
namespace {

// How often each of these tokens is drawn, of many draws.
constexpr int kDraws = 10000;
std::vector<double> shares(const std::vector<double>& logits, const Sampling& how) {
  std::vector<double> share(logits.size());
  for (int i = 0; i < kDraws; ++i) share[size_t(sample_token(logits, how, uint64_t(i)))] += 1.0 / kDraws;
  return share;
}
constexpr double kNear = 0.025;  // five standard deviations of a share of so many draws, at the most

TEST(Sampling, WithoutTemperatureTheFirstOfTheLikeliestIsChosen) {
  EXPECT_EQ(sample_token(std::vector<double>{0.5, 3, -1, 3, 2}, {.temperature = 0}, 7), 1);
  EXPECT_EQ(sample_token(std::vector<double>{-4, -4}, {.temperature = 0}, 0), 0);
}

TEST(Sampling, TokensAreDrawnByTheirProbabilities) {
  const std::vector<double> p{0.1, 0.4, 0.05, 0.3, 0.15};
  std::vector<double> logits, squares;
  for (const double x : p) logits.push_back(std::log(x) + 2), squares.push_back(x * x);
  const double sum = std::accumulate(squares.begin(), squares.end(), 0.0);
  const std::vector<double> all = shares(logits, {}), cold = shares(logits, {.temperature = 0.5});
  for (size_t i = 0; i < p.size(); ++i) {
    EXPECT_NEAR(all[i], p[i], kNear) << i;
    EXPECT_NEAR(cold[i], squares[i] / sum, kNear) << i;
  }
}

TEST(Sampling, OnlyTheLikeliestAreDrawn) {
  const std::vector<double> p{0.1, 0.4, 0.05, 0.3, 0.15};
  std::vector<double> logits;
  for (const double x : p) logits.push_back(std::log(x));
  const auto expect = [&](const Sampling& how, const std::vector<double>& of_tokens) {
    const std::vector<double> share = shares(logits, how);
    for (size_t i = 0; i < p.size(); ++i) {
      EXPECT_NEAR(share[i], of_tokens[i], kNear) << i;
      EXPECT_EQ(share[i] == 0, of_tokens[i] == 0) << i;
    }
  };
  expect({.top_k = 2}, {0, 4 / 7.0, 0, 3 / 7.0, 0});
  expect({.top_k = 9}, p);
  expect({.top_p = 0.75}, {0, 8 / 17.0, 0, 6 / 17.0, 3 / 17.0});    // 0.7 does not hold it
  expect({.top_p = 1e-9}, {0, 1, 0, 0, 0});                         // at least one
  expect({.top_k = 3, .top_p = 0.8}, {0, 4 / 7.0, 0, 3 / 7.0, 0});  // of what the three hold
  expect({.temperature = 1e-3, .top_p = 0.99}, {0, 1, 0, 0, 0});
}

// More than are sorted at first, and than twice that.
TEST(Sampling, DrawsReachAllOfALargeVocabulary) {
  std::vector<double> logits(600);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = i % 2 == 0 ? 0 : std::log(3.0);
  std::map<size_t, double> tenths;
  const std::vector<double> share = shares(logits, {});
  for (size_t i = 0; i < logits.size(); ++i) tenths[i / 60] += share[i];
  for (const auto& [tenth, of_it] : tenths) EXPECT_NEAR(of_it, 0.1, kNear) << tenth;
  double odd = 0;
  for (size_t i = 1; i < share.size(); i += 2) odd += share[i];
  EXPECT_NEAR(odd, 0.75, kNear);
  const std::vector<double> few = shares(logits, {.top_k = 400});
  double first = 0, others = 0;  // of the even ones, which are less likely: 100 are among the 400
  for (size_t i = 0; i < few.size(); i += 2) (i < 200 ? first : others) += few[i];
  EXPECT_GT(first, 0);
  EXPECT_EQ(others, 0);
}

TEST(Sampling, LogitsThatAreNoNumbersAreRefused) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  for (const double temperature : {0.0, 1.0}) {
    for (const std::vector<double>& logits :
         {std::vector<double>{1, kNan, 0}, {kNan, 1}, {1, kInfinity}, {-kInfinity, -kInfinity}})
      EXPECT_THROW(sample_token(logits, {.temperature = temperature}, 0), NumericsError);
    EXPECT_EQ(sample_token(std::vector<double>{-kInfinity, 1}, {.temperature = temperature}, 0), 1)
        << "it is ruled out";
  }
}

}  // namespace
}  // namespace weft
