// [islands] of a recipe.
#include <gtest/gtest.h>

#include "support.h"
#include "weft/base/error.h"
#include "weft/recipe/islands.h"

namespace weft {
namespace {

constexpr const char* kJoined = R"(
[model]
path = "m"
[data]
train = ["t"]
[train]
train_iters = 100
[islands]
count = 2
number = 1
address = "hub:7171"
sync_every = 10
)";

Islands islands_of(const std::vector<std::string>& settings = {}) { return parse_islands(kJoined, "r.toml", settings); }
std::string problem_of(const std::vector<std::string>& settings) {
  return testing::error_of<ConfigError>([&] { islands_of(settings); });
}
std::string islands_refusal_of(const std::vector<std::string>& settings) {
  const Recipe recipe = parse_recipe(kJoined, "r.toml", settings);
  return testing::error_of<ConfigError>([&] { check_islands_supported(islands_of(settings), recipe); });
}

TEST(IslandsRecipe, IsReadPrintedAndReadAgain) {
  const Islands islands = islands_of({"islands.outer_lr=0.5", "islands.wire_precision=bf16"});
  EXPECT_EQ(islands.count, 2);
  EXPECT_EQ(islands.address, "hub:7171");
  EXPECT_EQ(islands.outer_lr, 0.5);
  const std::string text = to_toml(parse_recipe(kJoined, "r.toml", {})) + to_toml(islands);
  EXPECT_EQ(parse_islands(text, "again", {}), islands);
  EXPECT_EQ(to_toml(Islands()), "");
}

TEST(IslandsRecipe, KeysAndValuesAreJudgedAsAllOthers) {
  EXPECT_SAYS(problem_of({"islands.counts=2"}), "did you mean islands.count?");
  EXPECT_SAYS(problem_of({"islands.outer_momentum=1"}), "expected a number from 0 to below 1");
  EXPECT_SAYS(problem_of({"islands.wire_precision=fp8"}), "one of \"f32\", \"bf16\"");
  EXPECT_SAYS(problem_of({"islands.number=2"}), "below islands.count = 2");
  EXPECT_SAYS(problem_of({"islands.fragments=4"}),
              "a divisor of islands.sync_every = 10; the nearest that works: "
              "islands.fragments = 2");
  EXPECT_SAYS(problem_of({"train.train_iters=95"}), "the nearest that works: train.train_iters = 100");
  EXPECT_SAYS(problem_of({"islands.timeout_seconds=301"}), "the nearest that works: islands.timeout_seconds = 300");
  EXPECT_SAYS(problem_of({"islands.address="}), "host:port of the hub");
  EXPECT_SAYS(testing::error_of<ConfigError>([] {
                parse_recipe(std::string(kJoined) + "[[phase]]\nfrom_step = 5\nislands.count = 3\n", "r", {});
              }),
              "cannot change in a [[phase]]");
}

TEST(IslandsRecipe, WhatIslandsCannotDoIsRefusedByName) {
  EXPECT_EQ(islands_refusal_of({}), "");
  EXPECT_SAYS(islands_refusal_of({"run.backend=ref"}), "run.backend = \"ref\" cannot run with [islands]");
  const Recipe phased =
      parse_recipe(std::string(kJoined) + "[[phase]]\nfrom_step = 5\noptimizer.lr = 1e-4\n", "r.toml", {});
  EXPECT_SAYS(testing::error_of<ConfigError>([&] { check_islands_supported(islands_of(), phased); }),
              "[[phase]] or train.rampup_batch_size cannot run with [islands]");
  EXPECT_SAYS(islands_refusal_of({"train.epochs=2", "train.train_iters=0"}), "train.epochs = 2");
  EXPECT_SAYS(islands_refusal_of({"train.on_spike=skip"}), "train.on_spike = \"skip\"");
  EXPECT_SAYS(islands_refusal_of({"checkpoint.async_save=true", "checkpoint.save_interval=10"}),
              "checkpoint.async_save");
  EXPECT_SAYS(islands_refusal_of({"moe.bias_update_rate=0.1"}), "moe.bias_update_rate = 0.1");
  EXPECT_SAYS(islands_refusal_of({"train.objective=dpo", "data.pairs=p"}), "train.objective = \"dpo\"");
  EXPECT_SAYS(islands_refusal_of({"islands.count=0"}), "[islands] has no effect: islands.count is 0");
}

// A run that is resumed may have another hub, and other islands must have the same settings.
TEST(IslandsRecipe, OnlyWhereAndHowLongMayChange) {
  const Islands one = islands_of();
  EXPECT_TRUE(island_differences(one, islands_of({"islands.address=b:1", "islands.timeout_seconds=3"})).empty());
  EXPECT_EQ(island_differences(one, islands_of({"islands.number=0"})),
            std::vector<std::string>{"islands.number: 1 there, 0 here"});
  EXPECT_EQ(island_differences(one, Islands()).front(), "islands.count: 2 there, 0 here");
  const Recipe recipe = parse_recipe(kJoined, "r.toml", {});
  EXPECT_EQ(shared_settings(one, recipe),
            shared_settings(islands_of({"islands.number=0", "islands.address=b:1"}), recipe));
  EXPECT_NE(shared_settings(one, recipe), shared_settings(islands_of({"islands.outer_lr=1"}), recipe));
}

}  // namespace
}  // namespace weft
