// What a run's metrics say of its routers, where it can be computed by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/records/metrics_log.h"

namespace weft {
namespace {

// A step of a golden model with all weights zero, so that its routers are even, on samples of 16 tokens.
StepRecord step_of_zeros(const std::string& model, const std::vector<std::string>& more) {
  const auto golden = std::filesystem::path(testing::kSourceDir) / "tests/golden" / model;
  const testing::TempDir dir;
  auto config = nlohmann::json::parse(std::ifstream(golden / "config.json"));
  config["initializer_range"] = 0;
  std::ofstream(dir / "config.json") << config;
  std::vector<std::string> all{"model.path=" + dir.path().string(),
                               "model.init=random",
                               "data.train=" + (golden / "tokens.bin").string(),
                               "train.seq_length=16",
                               "train.micro_batch_size=1",
                               "train.global_batch_size=2",
                               "train.train_iters=1",
                               "run.threads=1",
                               "run.dir=" + (dir / "run").string()};
  all.insert(all.end(), more.begin(), more.end());
  const Recipe recipe = parse_recipe("", "test", all);
  testing::train(recipe, machine_for(recipe));
  return read_metrics(dir / "run/metrics.jsonl").steps.at(0);
}

// All weights are zero, so that every expert has the share 1 / E of each token, and every token takes the first two.
TEST(RouterReport, OfRoutersThatKnowNothing) {
  const StepRecord step = step_of_zeros("mixtral", {"moe.aux_loss_coef=0.01"});
  const double layers = 4, entropy = std::log(4.0);
  EXPECT_NEAR(step.aux_loss, layers, 1e-6);
  EXPECT_NEAR(step.z_loss, layers * entropy * entropy, 1e-5);
  EXPECT_EQ(step.expert_load, std::vector<std::vector<int64_t>>(4, {32, 32, 0, 0}));
  ASSERT_EQ(step.router_entropy.size(), 4u);
  for (const double nats : step.router_entropy) EXPECT_NEAR(nats, entropy, 1e-6);
  EXPECT_TRUE(step.mtp_expert_load.empty());
}

// Every token takes the first three of eight experts, which the first of two ranks has: room for 48 of 96 pairs.
TEST(RouterReport, OfAModuleStandsBesideThatOfTheLayers) {
  const StepRecord step = step_of_zeros("mtp", {"train.mtp_loss_coef=0.3", "parallel.dp=2", "parallel.ep=2",
                                                "moe.capacity_factor=1", "moe.overflow=drop"});
  const std::vector<std::vector<int64_t>> load{{32, 32, 32, 0, 0, 0, 0, 0}};
  EXPECT_EQ(step.expert_load, load) << "of one layer, behind a dense one";
  EXPECT_EQ(step.mtp_expert_load, load);
  ASSERT_EQ(step.mtp_router_entropy.size(), 1u);
  EXPECT_NEAR(step.mtp_router_entropy[0], std::log(8.0), 1e-6);
  EXPECT_EQ(step.dropped, std::vector<int64_t>{48});
  EXPECT_EQ(step.mtp_dropped, std::vector<int64_t>{48});
}

}  // namespace
}  // namespace weft
