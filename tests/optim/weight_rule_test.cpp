#include "weft/optim/weight_rule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

using WeightFound = std::vector<WeightRule::Found>;

TEST(WeightRule, FindsAnUpdateThatIsTooLargeOnce) {
  WeightRule rule;
  EXPECT_TRUE(rule.look(1, {{"a", {1, 1, 0.1}}, {"b", {1, 1, 0.001}}}).empty());
  const WeightFound found = rule.look(2, {{"a", {1, 1, 0.11}}, {"b", {1, 1, 0.5}}, {"c", {1, 1, 0.01}}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, WeightRule::Found::Kind::update);
  EXPECT_EQ(found[0].tensor, "b");
  EXPECT_EQ(found[0].value, 0.5);
  EXPECT_EQ(found[0].tensors, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(rule.look(3, {{"a", {1, 1, 0.2}}, {"b", {1, 1, 0.01}}}).empty()) << "a was told";
  ASSERT_EQ(rule.look(4, {{"a", {1, 1, 0.2}}, {"b", {1, 1, 0.2}}}).size(), 1u) << "b is so again";
}

TEST(WeightRule, FindsAnUpdateThatIsNoNumber) {
  WeightRule rule;
  EXPECT_TRUE(rule.look(1, {{"a", {1, 1, 0.001}}}).empty());
  EXPECT_EQ(rule.look(2, {{"a", {1, 1, std::nan("")}}}).size(), 1u);
}

TEST(WeightRule, FindsANormThatHasDoubledWithinTheWindow) {
  WeightRule rule;
  EXPECT_TRUE(rule.look(1, {{"a", {1, 1.01, 0.01}}}).empty());
  EXPECT_TRUE(rule.look(500, {{"a", {2, 2, 0.01}}}).empty());
  const WeightFound found = rule.look(900, {{"a", {2, 2.02, 0.01}}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, WeightRule::Found::Kind::growth);
  EXPECT_EQ(found[0].value, 2.02);
  EXPECT_EQ(found[0].from_step, 0) << "before the first step";
  EXPECT_TRUE(rule.look(950, {{"a", {2, 2.1, 0.01}}}).empty()) << "it was told";
  EXPECT_TRUE(rule.look(1500, {{"a", {4, 4.0, 0.01}}}).empty());
  EXPECT_EQ(rule.look(1600, {{"a", {4, 4.1, 0.01}}}).size(), 1u);
}

TEST(WeightRule, SlowGrowthIsNone) {
  WeightRule rule;
  double norm = 1;
  for (int64_t step = 1; step <= 20'000; step += 100, norm *= 1.02)
    EXPECT_TRUE(rule.look(step, {{"a", {norm, norm, 0.01}}}).empty()) << step << " " << norm;
  EXPECT_GT(norm, 10);
}

TEST(WeightRule, AWeightThatBeganAsZeroIsJudgedOnceItHasASize) {
  WeightRule rule;
  EXPECT_TRUE(rule.look(1, {{"a", {0, 0, 0}}}).empty()) << "its gradient is 0";
  EXPECT_TRUE(rule.look(2, {{"a", {0, 1, 1}}}).empty());
  EXPECT_TRUE(rule.look(3, {{"a", {1, 3, 2}}}).empty());
  EXPECT_TRUE(rule.look(4, {{"a", {3, 3, 0.1}}}).empty());
  const WeightFound found = rule.look(5, {{"a", {3, 9, 6}}});
  ASSERT_EQ(found.size(), 1u) << "the update alone";
  EXPECT_EQ(found[0].kind, WeightRule::Found::Kind::update);
}

}  // namespace
}  // namespace weft
