// weft plan balance, by the trace of a step that this program ran.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/program.h"

namespace weft {
namespace {

using testing::Finished;
using testing::weft;

TEST(PlanBalance, CutsTheBlocksByWhatTheirStepTook) {
  const testing::TempDir dir;
  const std::string root = testing::kSourceDir, trace = (dir / "step.json").string(),
                    written = (dir / "balanced.toml").string();
  const std::vector<std::string> recipe{root + "/bench/llama-8x512.toml",
                                        "model.path=" + root + "/tests/golden/llama-gqa",
                                        "train.seq_length=16",
                                        "train.global_batch_size=4",
                                        "train.micro_batch_size=1",
                                        "run.threads=1",
                                        "run.backend=ref",
                                        "parallel.pp=2"};
  const auto run = [&](std::vector<std::string> args, const std::vector<std::string>& more) {
    args.insert(args.end(), recipe.begin(), recipe.end());
    args.insert(args.end(), more.begin(), more.end());
    return weft(args);
  };
  const Finished step = run({"bench", "step"}, {"--iters=1", "--trace", trace});
  ASSERT_EQ(step.status, 0) << step.err;

  nlohmann::json drawn = nlohmann::json::parse(testing::slurp(trace));
  nlohmann::json& layers = drawn["otherData"]["weft_layers"];
  EXPECT_EQ(layers["cut"], nlohmann::json({2, 2}));
  ASSERT_EQ(layers["blocks"].size(), 4u);
  for (const auto& block : layers["blocks"])  // those of the second stage too, which is another rank's
    for (const auto& seconds : block) EXPECT_GT(seconds.get<double>(), 0);
  EXPECT_GT(layers["embedding"][0].get<double>(), 0);
  EXPECT_GT(layers["head"][1].get<double>(), 0);
  const Finished as_it_was = run({"plan", "balance"}, {"--trace", trace, "--json"});
  EXPECT_EQ(as_it_was.status, 0) << as_it_was.err;

  for (auto& block : layers["blocks"]) block = {1, 1, 1};
  layers["embedding"] = {0, 0, 0};
  layers["head"] = {0, 6, 0};
  testing::spill(trace, drawn.dump());
  const Finished f = run({"plan", "balance"}, {"--trace", trace, "--write", written});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, "with parallel.pipeline_layout = [3, 1]");
  EXPECT_SAYS(f.out, "memory of the fullest rank: ");
  EXPECT_SAYS(testing::slurp(written), "pipeline_layout = [3, 1]");

  const Finished there = run({"plan", "balance"}, {"--trace", trace, "--write", written}),
                 longer = run({"plan", "balance"}, {"train.seq_length=32", "--trace", trace}),
                 no_trace = run({"plan", "balance"}, {"--trace", written});
  EXPECT_SAYS(there.err, "is there already");
  EXPECT_SAYS(longer.err, "train.seq_length is 16 there, and 32 here");
  EXPECT_SAYS(no_trace.err, "balanced.toml");
  for (const Finished& refused : {there, longer, no_trace}) EXPECT_NE(refused.status, 0);
}

}  // namespace
}  // namespace weft
