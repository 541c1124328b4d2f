#include "weft/train/returns.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "support.h"

namespace weft {
namespace {

constexpr const char* kRows =
    R"({"prompt": [1], "completion": [2, 3], "reward": 2, "old_logps": [-1, -2], "ref_logps": [-1.5, -1], "old_values": [0.5, 1]}
{"prompt": [1], "completion": [4], "reward": -1, "old_logps": [-1], "ref_logps": [-1], "old_values": [0.25]}
{"prompt": [1], "completion": [4], "reward": 1, "old_logps": [-1], "ref_logps": [-3], "old_values": [0]}
{"prompt": [1], "completion": [5], "reward": 3, "old_logps": [-1], "ref_logps": [-1], "old_values": [1]}
)";

RowOrder order_of(const testing::TempDir& dir) {
  std::ofstream(dir / "rollouts.jsonl") << kRows;
  return RowOrder(IdRows({.file = dir / "rollouts.jsonl",
                          .completions = {"completion"},
                          .number = "reward",
                          .token_numbers = {{"old_logps"}, {"ref_logps"}, {.name = "old_values", .is_logp = false}},
                          .vocab_size = 9,
                          .seq_length = 4}),
                  {.rows_of_step = 2, .seq_length = 4, .steps_of_batch = 2});
}

Recipe recipe_of() {
  Recipe r;
  r.train.global_batch_size = 2;
  r.objective.gamma = 0.5;
  r.objective.lambda = 0.4;
  r.objective.kl_coef = 0.1;
  return r;
}

// By hand: rewards -0.1 x 0.5 = -0.05, and 2 + 0.1 = 2.1; d = 2.1 - 1 = 1.1 and -0.05 + 0.5 - 0.5 = -0.05.
TEST(Returns, AreThoseOfTheFormulas) {
  const testing::TempDir dir;
  const RowOrder order = order_of(dir);
  const Returns r = returns_of(order.id_rows(), 0, recipe_of().objective);
  ASSERT_EQ(r.advantages.size(), 2u);
  EXPECT_NEAR(r.advantages[1], 1.1, 1e-15);
  EXPECT_NEAR(r.advantages[0], -0.05 + 0.2 * 1.1, 1e-15);
  EXPECT_NEAR(r.returns[1], 2.1, 1e-15);
  EXPECT_NEAR(r.returns[0], 0.17 + 0.5, 1e-15);
}

// Two steps take the batch; its two rows have three tokens together.
TEST(Returns, AdvantagesAreWhitenedOverAllTokensOfTheBatch) {
  const testing::TempDir dir;
  const RowOrder order = order_of(dir);
  BatchReturns batches(order, recipe_of());
  const double all[] = {0.17, 1.1, -1.25}, mean = (0.17 + 1.1 - 1.25) / 3;
  double squares = 0;
  for (const double a : all) squares += (a - mean) * (a - mean);
  const double deviation = std::sqrt(squares / 2 + 1e-8);
  for (const int64_t step : {0, 1}) {
    const auto first = batches.of(step, 0), second = batches.of(step, 1);
    ASSERT_EQ(first.advantages.size(), 2u);
    ASSERT_EQ(second.advantages.size(), 1u);
    EXPECT_NEAR(first.advantages[0], (0.17 - mean) / deviation, 1e-14);
    EXPECT_NEAR(first.advantages[1], (1.1 - mean) / deviation, 1e-14);
    EXPECT_NEAR(second.advantages[0], (-1.25 - mean) / deviation, 1e-14);
    EXPECT_NEAR(second.returns[0], -1, 1e-15);
  }
  EXPECT_NEAR(batches.of(2, 0).returns[0], 1 - 0.1 * 2, 1e-15);
}

TEST(Returns, AdvantagesStayWhereNothingWhitensThem) {
  const testing::TempDir dir;
  const RowOrder order = order_of(dir);
  Recipe recipe = recipe_of();
  recipe.objective.whiten_advantages = false;
  BatchReturns batches(order, recipe);
  const auto first = batches.of(0, 0), second = batches.of(0, 1);
  EXPECT_NEAR(first.advantages[0], 0.17, 1e-15);
  EXPECT_NEAR(first.advantages[1], 1.1, 1e-15);
  EXPECT_NEAR(second.advantages[0], -1.25, 1e-15);
}

}  // namespace
}  // namespace weft
