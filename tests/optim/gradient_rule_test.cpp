#include "weft/optim/gradient_rule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

using GradientNorms = std::map<std::string, double>;
using GradientFound = std::optional<GradientRule::Found>;

// Steps [from, end) with the same norms, in which nothing may be found.
void expect_calm(GradientRule& rule, int64_t from, int64_t end, const GradientNorms& norms) {
  for (int64_t step = from; step < end; ++step) EXPECT_FALSE(rule.look(step, norms)) << step;
}

TEST(GradientRule, FindsOneThatFallsFarBelowWhatItWas) {
  GradientRule rule;
  expect_calm(rule, 1, 101, {{"embed", 1}, {"head", 1}});
  expect_calm(rule, 101, 120, {{"embed", 1e-4}, {"head", 1}});
  const GradientFound found = rule.look(120, {{"embed", 1e-4}, {"head", 1}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->tensor, "embed");
  EXPECT_EQ(found->from_step, 101);
  EXPECT_FALSE(found->beside_others);
  EXPECT_NEAR(found->usual, std::sqrt(0.5), 1e-6) << "its share of the norm of all, at the norm of now";
  EXPECT_EQ(found->tensors, std::vector<std::string>{"embed"});
  expect_calm(rule, 121, 200, {{"embed", 1e-4}, {"head", 1}});  // it was told
  expect_calm(rule, 200, 201, {{"embed", 1}, {"head", 1}});
  expect_calm(rule, 201, 220, {{"embed", 1e-4}, {"head", 1}});
  EXPECT_TRUE(rule.look(220, {{"embed", 1e-4}, {"head", 1}})) << "it is so again";
}

TEST(GradientRule, FindsTheLayersBelowWhichGradientsDoNotCome) {
  GradientRule rule;
  const GradientNorms norms{{"layers.0.up", 1e-9}, {"layers.1.up", 1e-6}, {"layers.2.up", 0.5},
                            {"layers.3.up", 1},    {"layers.10.up", 1},   {"layers.0.down", 1e-9}};
  expect_calm(rule, 1, 20, norms);
  const GradientFound found = rule.look(20, norms);
  ASSERT_TRUE(found) << "from the first step on, without a history";
  EXPECT_EQ(found->tensor, "layers.0.up");
  EXPECT_TRUE(found->beside_others);
  EXPECT_EQ(found->usual, 0.5);
  EXPECT_EQ(found->tensors, (std::vector<std::string>{"layers.0.up", "layers.1.up"})) << "one alone has no others";
}

TEST(GradientRule, AFewStepsAreNone) {
  GradientRule rule;
  expect_calm(rule, 1, 101, {{"embed", 1}, {"head", 1}});
  for (int64_t step = 101; step < 400; ++step)
    EXPECT_FALSE(rule.look(step, {{"embed", step % 20 == 0 ? 1 : 0}, {"head", 1}})) << step;
}

TEST(GradientRule, WhatFallsWithAllOthersConverges) {
  GradientRule rule;
  for (int64_t step = 1; step < 1000; ++step) {
    const double all = std::exp(-0.02 * double(step));
    EXPECT_FALSE(rule.look(step, {{"embed", all}, {"head", 2 * all}})) << step;
  }
}

TEST(GradientRule, WhatWasAlwaysZeroAndStepsThatSayNothingAreNone) {
  GradientRule rule;
  expect_calm(rule, 1, 300, {{"embed", 0}, {"head", 1}});
  expect_calm(rule, 300, 400, {{"embed", 0}, {"head", 0}});
  expect_calm(rule, 400, 500, {{"embed", 0}, {"head", std::nan("")}});
}

TEST(GradientRule, OneStepThatStandsOutIsNoHistory) {
  GradientRule rule;
  expect_calm(rule, 1, 100, {{"embed", 1e-6}, {"head", 1}});
  expect_calm(rule, 100, 101, {{"embed", 1}, {"head", 1}});
  expect_calm(rule, 101, 200, {{"embed", 1e-6}, {"head", 1}});
}

}  // namespace
}  // namespace weft
