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

// All weights are zero, so that every expert has the share 1 / E of each token, and every token takes the first two.
TEST(RouterReport, OfRoutersThatKnowNothing) {
  const auto golden = std::filesystem::path(testing::kSourceDir) / "tests/golden/mixtral";
  const testing::TempDir dir;
  auto config = nlohmann::json::parse(std::ifstream(golden / "config.json"));
  config["initializer_range"] = 0;
  std::ofstream(dir / "config.json") << config;
  const Recipe recipe = parse_recipe(
      "", "test",
      {"model.path=" + dir.path().string(), "model.init=random", "data.train=" + (golden / "tokens.bin").string(),
       "train.seq_length=16", "train.micro_batch_size=1", "train.global_batch_size=2", "train.train_iters=1",
       "moe.aux_loss_coef=0.01", "run.threads=1", "run.dir=" + (dir / "run").string()});
  testing::train(recipe, machine_for(recipe));
  const StepRecord step = read_metrics(dir / "run/metrics.jsonl").steps.at(0);
  const double layers = 4, entropy = std::log(4.0);
  EXPECT_NEAR(step.aux_loss, layers, 1e-6);
  EXPECT_NEAR(step.z_loss, layers * entropy * entropy, 1e-5);
  EXPECT_EQ(step.expert_load, std::vector<std::vector<int64_t>>(4, {32, 32, 0, 0}));
  ASSERT_EQ(step.router_entropy.size(), 4u);
  for (const double nats : step.router_entropy) EXPECT_NEAR(nats, entropy, 1e-6);
}

}  // namespace
}  // namespace weft
