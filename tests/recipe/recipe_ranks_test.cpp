// What a recipe says of its ranks: their order, and that they come and go.
#include <gtest/gtest.h>

#include "support.h"
#include "weft/base/error.h"
#include "weft/recipe/recipe.h"

namespace weft {
namespace {

const std::string kRanks = "[model]\npath = \"m\"\n[data]\ntrain = [\"a.bin\"]\n";

std::string refused(const std::vector<std::string>& settings) {
  return testing::error_of<Error>([&] { check_supported(parse_recipe(kRanks, "r.toml", settings)); });
}

TEST(RecipeRanks, HaveAnOrderThatIsAPermutationOfTheAxes) {
  EXPECT_EQ(parse_recipe(kRanks, "r.toml", {"parallel.order=dp-tp-pp-cp-ep"}).parallel.order, "dp-tp-pp-cp-ep");
  for (const char* order : {"", "tp-dp-pp", "tp-cp-ep-dp-dp", "tp-cp-ep-dp-pp-tp", "TP-CP-EP-DP-PP"})
    EXPECT_SAYS(refused({std::string("parallel.order=") + order}),
                fmt::format("parallel.order = \"{}\": expected the names tp, cp, ep, dp, pp, each once", order));
}

TEST(RecipeRanks, MayHaveUnequalSharesOfTheBatch) {
  const auto refused_of = [](std::vector<std::string> more) {
    more.insert(more.end(), {"train.global_batch_size=16", "train.micro_batch_size=2", "parallel.dp=2"});
    return refused(more);
  };
  EXPECT_EQ(refused_of({"parallel.micro_batches=[6, 2]"}), "");
  EXPECT_EQ(refused_of({"parallel.micro_batches=[4, 4]", "parallel.zero_stage=3"}), "");
  EXPECT_SAYS(refused_of({"parallel.micro_batches=[6, 3]"}),
              "a number for each of parallel.dp = 2 ranks, together train.global_batch_size / train.micro_batch_size = "
              "16 / 2, or none: equal shares");
  EXPECT_SAYS(refused_of({"parallel.micro_batches=[6, 3]"}), "parallel.micro_batches = [5, 3]");
  EXPECT_SAYS(refused_of({"parallel.micro_batches=[8]"}), "parallel.micro_batches = [4, 4]");
  EXPECT_SAYS(refused_of({"parallel.micro_batches=[8, 0]"}), "at least 1");
  // A number of micro-batches that dp does not divide.
  EXPECT_EQ(refused({"train.global_batch_size=7", "train.micro_batch_size=1", "parallel.dp=2",
                     "parallel.micro_batches=[4, 3]"}),
            "");
  EXPECT_SAYS(refused({"train.global_batch_size=7", "train.micro_batch_size=1", "parallel.dp=2",
                       "parallel.micro_batches=[4, 3]", "parallel.zero_stage=1", "parallel.zero_shard_size=3"}),
              "a divisor of parallel.dp = 2");
}

// Each by name, with what works.
TEST(RecipeRanks, WithUnequalSharesShareNothingWithinAMicroBatch) {
  const auto refused_with = [](const std::string& setting) {
    return refused({"train.global_batch_size=8", "train.micro_batch_size=1", "parallel.dp=2",
                    "parallel.micro_batches=[6, 2]", setting});
  };
  EXPECT_EQ(refused_with("parallel.zero_stage=1"), "");
  EXPECT_SAYS(refused_with("parallel.zero_stage=2"),
              "parallel.micro_batches = [6, 2] cannot run: with parallel.zero_stage = 2 data parallel ranks sum "
              "gradients in every micro-batch");
  EXPECT_SAYS(refused_with("parallel.zero_stage=3"),
              "the nearest that works: parallel.zero_stage = 1, or parallel.micro_batches = []");
  EXPECT_SAYS(refused_with("parallel.ep=2"), "rows of experts in every micro-batch");
  // A batch that grows has other numbers of micro-batches.
  EXPECT_SAYS(refused_with("train.rampup_batch_size=[4, 4, 64]"), "parallel.micro_batches");
}

TEST(RecipeRanks, AreRebalancedWhereTheirSharesMayChange) {
  const auto refused_with = [](const std::string& setting) {
    return refused(
        {"train.global_batch_size=8", "train.micro_batch_size=1", "parallel.dp=2", "train.rebalance=true", setting});
  };
  EXPECT_EQ(refused_with("parallel.zero_stage=1"), "");
  EXPECT_EQ(refused_with("parallel.micro_batches=[6, 2]"), "");
  EXPECT_SAYS(refused_with("parallel.zero_stage=3"),
              "train.rebalance = true cannot run: with parallel.zero_stage = 3 data parallel ranks gather weights");
  EXPECT_SAYS(refused_with("train.rampup_batch_size=[4, 4, 64]"), "phases and a ramp of the batch");
  EXPECT_SAYS(refused_with("run.backend=cuda"), "the host of a GPU");
  EXPECT_EQ(refused_with("parallel.pipeline_schedule=gpipe"), "");
  EXPECT_SAYS(refused({"train.global_batch_size=8", "train.micro_batch_size=1", "parallel.dp=2", "parallel.pp=2",
                       "train.rebalance=true", "parallel.pipeline_schedule=gpipe"}),
              "\"gpipe\" keeps all micro-batches");
}

TEST(RecipeRanks, ComeAndGoWhereSomethingTells) {
  EXPECT_SAYS(refused({"fleet.min_ranks=2"}), "without fleet.available or fleet.hosts");
  EXPECT_SAYS(refused({"fleet.available=n", "fleet.min_ranks=3", "fleet.max_ranks=2"}), "at most fleet.max_ranks = 2");
  EXPECT_SAYS(refused({"fleet.hosts=h"}), "run.ranks = \"mpi\"");
  EXPECT_SAYS(refused({"fleet.hosts=h", "run.ranks=mpi", "fleet.available=n"}), "empty beside fleet.available");
  EXPECT_SAYS(refused({"fleet.may_change=dpp"}), "a list, each one of \"dp\"");
  EXPECT_SAYS(refused({"fleet.available=n", "fleet.may_change=[\"dp\", \"tp\"]", "train.numerics=invariant"}),
              "another tp has other last bits");
  EXPECT_EQ(refused({"fleet.available=n", "fleet.min_ranks=2", "fleet.max_ranks=2"}), "");
}

}  // namespace
}  // namespace weft
