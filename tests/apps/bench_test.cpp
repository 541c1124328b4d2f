// weft bench, as a process.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/program.h"
#include "weft/ops/backend.h"

namespace weft {
namespace {

using testing::Finished;
using testing::weft;

template <class... Ops>
std::vector<std::string> names_of(OpList<Ops...>) {
  return {std::string(Ops::kName)...};
}

TEST(BenchKernelsSlow, TimesEveryOpBesideWhatTheMachineAllows) {
  const Finished f = weft({"bench", "kernels", "--tokens=8", "--iters=1", "--threads=1", "--precision=f32"});
  EXPECT_EQ(f.status, 0) << f.err;
  for (const std::string& op : names_of(AllOps())) EXPECT_SAYS(f.out, "\n" + op + " ");
  EXPECT_SAYS(f.out, "8 tokens of width 4096, f32; measured: ");
}

TEST(BenchKernels, RefusesWhatIsOfAnotherBenchmark) {
  const Finished recipe = weft({"bench", "kernels", "r.toml"}),
                 tokens = weft({"bench", "step", "r.toml", "--tokens=8"}),
                 layouts = weft({"bench", "kernels", "--layouts", "dp=2"});
  EXPECT_SAYS(recipe.err, "bench kernels takes no recipe");
  EXPECT_SAYS(tokens.err, "--tokens are of `weft bench kernels`");
  EXPECT_SAYS(layouts.err, "--layouts, --trace and --ops are of `weft bench scaling` and `weft bench step`");
  for (const Finished& f : {recipe, tokens, layouts}) EXPECT_EQ(f.status, 2);
}

// With a model that runs in a moment.
Finished bench_step(std::vector<std::string> more) {
  const std::string root = testing::kSourceDir, golden = root + "/tests/golden/llama-gqa";
  std::vector<std::string> args{"bench",
                                "step",
                                root + "/bench/llama-8x512.toml",
                                "model.path=" + golden,
                                "train.seq_length=8",
                                "train.global_batch_size=2",
                                "train.micro_batch_size=1",
                                "run.threads=1",
                                "--iters=1"};
  args.insert(args.end(), more.begin(), more.end());
  return weft(args);
}

TEST(BenchStepSlow, ThatDoesNotFitIsRefusedWithTheNearestThatDoes) {
  const Finished f =
      bench_step({"train.seq_length=16384", "train.global_batch_size=65536", "train.micro_batch_size=65536"});
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "no memory for the plan: its rank takes ");
  EXPECT_SAYS(f.err, "the nearest that fits: train.micro_batch_size=");
  EXPECT_EQ(f.err.find("--force"), std::string::npos);
}

// It would be ignored: all layouts run the same.
TEST(BenchScaling, RefusesALayoutThatChangesTheRun) {
  const Finished f = weft({"bench", "scaling", std::string(testing::kSourceDir) + "/bench/llama-8x512.toml",
                           "--layouts", "dp=2", "run.backend=ref"});
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "--layouts run.backend=ref: [run] is the same for all layouts; write run.backend=ref before");
}

TEST(BenchScaling, RefusesToReplaceATrace) {
  const testing::TempDir dir;
  testing::spill(dir / "trace", "of another step");
  const Finished f =
      weft({"bench", "scaling", std::string(testing::kSourceDir) + "/bench/llama-8x512.toml",
            "model.path=" + std::string(testing::kSourceDir) + "/tests/golden/llama-gqa", "train.seq_length=8",
            "train.micro_batch_size=2", "--iters=1", "--trace", (dir / "trace").string()});
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "is there already; name another file, or add --again");
  EXPECT_EQ(testing::slurp(dir / "trace"), "of another step");
}

// Also where a step only computes, and learns from no other rank how many rows its experts have.
TEST(BenchScaling, ExpertsMayLieOnOtherRanks) {
  testing::TempDir dir;
  const Finished f =
      weft({"bench", "scaling", std::string(testing::kSourceDir) + "/bench/experts-8x512.toml",
            "model.path=" + std::string(testing::kSourceDir) + "/tests/golden/mixtral", "train.seq_length=16",
            "train.micro_batch_size=2", "run.dir=" + (dir / "run").string(), "--iters=1", "--layouts", "dp=2,ep=2"});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.out, "\ndp=2,ep=2 ");
}

#if defined(__x86_64__)
TEST(BenchStep, ObeysTheLimitOfKernels) {
  setenv("WEFT_CPU_ISA", "portable", 1);
  const Finished limited = bench_step({"run.backend=cpu"});
  setenv("WEFT_CPU_ISA", "avx1024", 1);
  const Finished unknown = bench_step({"run.backend=cpu"});
  unsetenv("WEFT_CPU_ISA");
  EXPECT_EQ(limited.status, 0) << limited.err;
  EXPECT_SAYS(limited.out, "f32 products: weft's, ");
  EXPECT_SAYS(limited.out, "all other ops: weft's, ");
  EXPECT_EQ(limited.out.find("AVX"), std::string::npos) << limited.out;
  EXPECT_EQ(unknown.status, 2);
  EXPECT_SAYS(unknown.err, "avx1024");
  EXPECT_SAYS(unknown.err, "portable");
}
#endif

TEST(BenchStep, SyntheticTokensAreNoneToTrainOn) {
  const Finished f = weft({"train", std::string(testing::kSourceDir) + "/bench/llama-8x512.toml"});
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "data.train = [\"synthetic\"] is random tokens that `weft bench` makes");
}

TEST(BenchStepSlow, SaysWhatEachOpTookAndDrawsTheStep) {
  const testing::TempDir dir;
  for (const std::string backend : {"ref", "cpu"}) {
    const std::string trace = (dir / backend).string();
    const Finished f = bench_step({"run.backend=" + backend, "--ops", "--trace", trace});
    ASSERT_EQ(f.status, 0) << backend << ": " << f.err;
    EXPECT_SAYS(f.out, "whole step ");
    EXPECT_SAYS(f.out, "\nop                   m x n x k");
    for (const char* op :
         {"matmul ", "attention ", "attention_backward ", "norm_backward ", "adamw ", "idle: no op ran", "the step "})
      EXPECT_SAYS(f.out, "\n" + std::string(op));
    EXPECT_EQ(f.out.find("part of a step"), std::string::npos);
    int64_t products = 0;
    const auto drawn = nlohmann::json::parse(testing::slurp(trace));
    int64_t instructions = 0;
    for (const auto& e : drawn["traceEvents"]) {
      products += e["name"] == "matmul";
      instructions += e["name"] == "B0 wgrad blocks.0" && e["cat"] == "instructions";
    }
    EXPECT_EQ(instructions, 2) << "its beginning and its end";
    std::istringstream lines(f.out.substr(f.out.find("\nop  ")));
    int64_t counted = 0;
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("matmul ") && line.find("shapes") == std::string::npos)
        counted += std::stoll(line.substr(49));
    EXPECT_EQ(counted, products);
  }
}

TEST(BenchStep, TimesARankOfALayout) {
  const testing::TempDir dir;
  const std::string trace = (dir / "trace").string();
  for (const std::string layout : {"parallel.cp=2", "parallel.dp=2", "parallel.pp=2"}) {
    const Finished f = bench_step({layout, "run.backend=ref", "train.seq_length=16", "--trace", trace, "--again"});
    ASSERT_EQ(f.status, 0) << layout << ": " << f.err;
    EXPECT_SAYS(f.out, "2 ranks, of which this is rank 0");
    EXPECT_SAYS(f.out, "whole step ");
    EXPECT_SAYS(testing::slurp(trace), "attention_backward");
  }
  const Finished twice = bench_step({"run.backend=ref", "--trace", trace});
  EXPECT_EQ(twice.status, 2);
  EXPECT_SAYS(twice.err, "is there already; name another file, or add --again");
  const Finished processes = bench_step({"parallel.dp=2", "run.ranks=mpi"});
  EXPECT_EQ(processes.status, 2);
  EXPECT_SAYS(processes.err, "the nearest that works: run.ranks = \"local\"");
}

TEST(BenchStep, SaysTheKindsOfOpsAndRefusesWhatIsOfAnotherBenchmark) {
  const Finished step = bench_step({"run.backend=ref"}), layouts = bench_step({"--layouts", "dp=2"}),
                 scaling = weft({"bench", "scaling", "r.toml", "--ops"}), kernels = weft({"bench", "kernels", "--ops"});
  EXPECT_EQ(step.status, 0) << step.err;
  EXPECT_SAYS(step.out, "part of a step");
  EXPECT_SAYS(layouts.err, "--layouts is of `weft bench scaling`");
  EXPECT_SAYS(scaling.err, "--ops is of `weft bench step`");
  EXPECT_SAYS(kernels.err, "--ops are of `weft bench scaling` and `weft bench step`");
  for (const Finished& f : {layouts, scaling, kernels}) EXPECT_EQ(f.status, 2);
}

}  // namespace
}  // namespace weft
