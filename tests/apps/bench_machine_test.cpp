// weft bench machine and weft bench forecast, as processes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "apps/program.h"
#include "weft/apps/backends.h"
#include "weft/forecast/cluster.h"
#include "weft/plan/run_plan.h"
#include "weft/plan/step_data.h"

namespace weft {
namespace {

using testing::Finished;
using testing::slurp;
using testing::spill;
using testing::TempDir;
using testing::weft;

// As little as can be: a moment.
Finished measure_little(const std::string& out, std::vector<std::string> more = {}) {
  std::vector<std::string> args{"bench",     "machine",     "--ranks",         "2",     "--tokens=16",
                                "--iters=1", "--threads=1", "--precision=f32", "--out", out};
  args.insert(args.end(), more.begin(), more.end());
  return weft(args);
}

std::vector<std::string> small_recipe(std::vector<std::string> more) {
  const std::string root = testing::kSourceDir;
  std::vector<std::string> args{root + "/bench/llama-8x512.toml",
                                "model.path=" + root + "/tests/golden/llama-gqa",
                                "train.seq_length=8",
                                "train.global_batch_size=4",
                                "train.micro_batch_size=1",
                                "run.threads=1"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(BenchMachine, WritesAFileByWhichAStepIsForecastOpByOp) {
  const TempDir dir;
  const std::string file = (dir / "m.toml").string();
  const Finished f = measure_little(file);
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "2 ranks of 1 thread: collectives and messages of 2 ranks");
  const ClusterSpec c = read_cluster(file);
  ASSERT_EQ(c.measured.size(), 1u);
  EXPECT_EQ(c.devices_per_node, 2);
  EXPECT_EQ(c.measured[0].collectives.size(), 4u);
  EXPECT_GT(c.measured[0].best_rate("f32"), 1e6);
  const std::vector<std::string> words = small_recipe({"parallel.dp=2"});
  const Recipe recipe = read_recipe(words[0], {words.begin() + 1, words.end()});
  const StepData data = step_data_of(prepare_run(recipe, 0), WorkspaceModel());
  for (const StepAction& action : data.actions)  // nothing is forecast at best rates
    for (const StepPart& part : action.parts)
      for (const StepOp& op : part.ops) EXPECT_TRUE(c.measured[0].seconds_of(op).has_value()) << op.name;
  for (const StepOp& op : data.end.ops) EXPECT_TRUE(c.measured[0].seconds_of(op).has_value()) << op.name;
  std::vector<std::string> args = small_recipe({"parallel.dp=2", "--cluster", file, "--iters=1", "--json"});
  args.insert(args.begin(), {"bench", "forecast"});
  const Finished beside = weft(args);
  ASSERT_EQ(beside.status, 0) << beside.err;
  const auto json = nlohmann::json::parse(beside.out);
  EXPECT_GT(json["forecast_s"], 0);
  EXPECT_GT(json["measured_s"], 0);
  EXPECT_EQ(json["ranks"], 2);
  int64_t ops = 0;
  for (const auto& [name, part] : json["parts"].items()) {
    EXPECT_EQ(part["forecast_count"], part["count"]) << name;  // the ops of the plan are those that run
    ops += part["count"].get<int64_t>();
  }
  EXPECT_GT(ops, 50);
  EXPECT_GT(json["parts"]["matmul"]["forecast_s"], 0);
  EXPECT_GT(json["parts"]["exposed data"]["forecast_s"], 0);
  EXPECT_GT(json["parts"]["exposed data"]["measured_s"], 0);
}

TEST(BenchMachine, ReplacesNoFileUnasked) {
  const TempDir dir;
  const std::string file = (dir / "m.toml").string();
  spill(file, "mine");
  const Finished f = measure_little(file);
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "m.toml is there already; name another with --out, or replace it with --again");
  EXPECT_EQ(slurp(file), "mine");
}

TEST(BenchMachine, MeasuresNothingThatItCouldNotWrite) {
  const TempDir dir;
  const Finished nowhere = measure_little((dir / "none" / "m.toml").string()),
                 folder = measure_little(dir.path().string());
  EXPECT_SAYS(nowhere.err, "none is no folder that can be written to; make it, or name another");
  EXPECT_SAYS(folder.err, "is a folder; name a file in it");
  for (const Finished& f : {nowhere, folder}) {
    EXPECT_EQ(f.status, 2);
    EXPECT_EQ(f.err.find("ranks of"), std::string::npos) << f.err;
  }
}

TEST(BenchMachine, RefusesWhatIsOfAnotherBenchmark) {
  const Finished recipe = weft({"bench", "machine", "r.toml"}), ranks = weft({"bench", "machine", "--ranks", "1,two"}),
                 ops = weft({"bench", "machine", "--ops"}), out = weft({"bench", "step", "r.toml", "--out", "m.toml"}),
                 cluster = weft({"bench", "step", "r.toml", "--cluster", "m.toml"});
  EXPECT_SAYS(recipe.err, "bench machine takes no recipe");
  EXPECT_SAYS(ranks.err, "--ranks two: numbers of ranks, from 1 to");
  EXPECT_SAYS(ops.err, "bench machine takes --ranks, --out");
  EXPECT_SAYS(out.err, "--ranks and --out are of `weft bench machine`");
  EXPECT_SAYS(cluster.err, "--cluster is of `weft bench forecast`, and --json of it and of `weft bench decode`");
  for (const Finished& f : {recipe, ranks, ops, out, cluster}) EXPECT_EQ(f.status, 2);
}

TEST(BenchForecast, RefusesAClusterThatWasNotMeasured) {
  std::vector<std::string> args = small_recipe({"--cluster", "H100-SXM"});
  args.insert(args.begin(), {"bench", "forecast"});
  const Finished preset = weft(args), none = weft({"bench", "forecast", "r.toml"});
  EXPECT_SAYS(preset.err, "H100-SXM says nothing that was measured; what works: a file of `weft bench machine`");
  EXPECT_SAYS(none.err, "bench forecast needs a recipe and a cluster's file");
  for (const Finished& f : {preset, none}) EXPECT_EQ(f.status, 2);
}

}  // namespace
}  // namespace weft
