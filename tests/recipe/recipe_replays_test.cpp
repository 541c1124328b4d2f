// Which recipes have steps that a data parallel neighbour can do too.
#include <gtest/gtest.h>

#include "support.h"
#include "weft/base/error.h"
#include "weft/recipe/recipe.h"

namespace weft {
namespace {

Recipe recipe_of_replays(const std::vector<std::string>& overrides) {
  return parse_recipe("[model]\npath = \"m\"\n[data]\ntrain = [\"a.bin\"]\n[parallel]\ndp = 2\n", "r.toml", overrides);
}

TEST(RecipeReplays, WhatAStepCannotBeReplayedForIsRefusedAndSaidToWhoAsksLater) {
  struct Case {
    std::vector<std::string> overrides;
    std::string why;
  };
  for (const auto& [overrides, why] :
       {Case{{"parallel.ep=2"}, "with parallel.ep = 2 data parallel ranks compute each micro-batch together"},
        Case{{"run.backend=cuda"}, "whether two GPUs compute the same bits has not been tested"},
        Case{{"run.backend=cuda", "train.numerics=nondeterministic"}, "with train.numerics = \"nondeterministic\" the"},
        Case{{"train.rebalance=true", "train.global_batch_size=8"}, "ranks with unequal shares have no others' work"},
        Case{{"train.global_batch_size=16", "parallel.micro_batches=[3, 1]"}, "ranks with unequal shares have no"},
        Case{{"train.objective=dpo", "data.train=[]", "data.pairs=p.jsonl"}, "train.objective = \"dpo\" begins"}}) {
    EXPECT_SAYS(why_not_replayed(recipe_of_replays(overrides)), why);
    std::vector<std::string> replayed = overrides;
    replayed.push_back("train.replay_interval=5");
    const std::string error = testing::error_of<Error>([&] { check_supported(recipe_of_replays(replayed)); });
    EXPECT_SAYS(error, "train.replay_interval = 5 cannot run: " + why);
    EXPECT_SAYS(error, ", or train.replay_interval = 0");
  }
}

TEST(RecipeReplays, AStepOfSeveralDataParallelRanksCanBeReplayed) {
  EXPECT_EQ(why_not_replayed(recipe_of_replays({"parallel.pp=2", "parallel.tp=2", "parallel.zero_stage=3"})), "");
  EXPECT_NO_THROW(check_supported(recipe_of_replays({"train.replay_interval=5"})));
  EXPECT_EQ(why_not_replayed(recipe_of_replays({"parallel.dp=1"})),
            "at parallel.dp = 1 there is no other rank to do it");
}

}  // namespace
}  // namespace weft
