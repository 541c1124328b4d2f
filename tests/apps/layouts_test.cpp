// Layouts as the programs take them: lists of them, and those that cannot be run as threads.
#include <gtest/gtest.h>

#include "support.h"
#include "weft/apps/bench_scaling.h"
#include "weft/apps/launch.h"
#include "weft/base/error.h"

namespace weft {
namespace {

TEST(Layouts, ACommaInBracketsDoesNotEndASetting) {
  using List = std::vector<std::string>;
  EXPECT_EQ(layout_overrides("dp=2"), List{"parallel.dp=2"});
  EXPECT_EQ(layout_overrides("dp=2,train.seed=3"), (List{"parallel.dp=2", "train.seed=3"}));
  EXPECT_EQ(layout_overrides("pp=2,pipeline_layout=[6,1],tp=2"),
            (List{"parallel.pp=2", "parallel.pipeline_layout=[6,1]", "parallel.tp=2"}));
  EXPECT_EQ(layout_overrides("model.path=a.b,dp=2"), (List{"model.path=a.b", "parallel.dp=2"}));
}

TEST(Layouts, TooManyRanksToBeThreadsAreRefusedByName) {
  const auto refusal = [](const std::string& ranks, int world) -> std::string {
    Recipe recipe;
    recipe.run.ranks = choice_named<RanksKind>(ranks).value();
    return testing::error_of<ConfigError>([&] { check_launch(recipe, world, {}); });
  };
  EXPECT_EQ(refusal("local", 4096), "");
  EXPECT_EQ(refusal("mpi", 4097), "");
  EXPECT_EQ(refusal("local", 4097),
            "run.ranks = \"local\" cannot run: 4097 ranks as threads of one process, which may have 4096; the nearest "
            "that works: run.ranks = \"mpi\"");
}

}  // namespace
}  // namespace weft
