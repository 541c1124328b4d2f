// Runs on a GPU: those of an independent implementation, the same bits again, and whatever the layout.
#include "gpu/gpu.h"
#include "train/forward_only.h"
#include "train/golden.h"
#include "train/layout_matrix.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

void expect_golden_on_gpu(std::vector<std::string> overrides, const testing::GoldenTolerance& tolerance) {
  overrides.push_back("run.backend=" + testing::gpu_backend());
  for (const std::string& name : testing::kGoldenCases)
    testing::expect_golden(name, testing::gpu_machine(), overrides, tolerance);
}

TEST(GoldenGpu, EveryDenseCaseInF32) {
  WEFT_NEEDS_GPU();
  expect_golden_on_gpu({"train.micro_batch_size=8"}, testing::kGoldenF32);
}

TEST(GoldenGpu, EveryDenseCaseInF32AccumulatedAndRecomputed) {
  WEFT_NEEDS_GPU();
  expect_golden_on_gpu({"train.micro_batch_size=2", "parallel.recompute=full"}, testing::kGoldenF32);
}

TEST(GoldenGpu, Bf16FollowsTheF32Run) {
  WEFT_NEEDS_GPU();
  expect_golden_on_gpu({"train.precision=bf16", "train.micro_batch_size=4"}, testing::kGoldenBf16);
}

TEST(GoldenGpu, Fp16FollowsTheF32Run) {
  WEFT_NEEDS_GPU();
  expect_golden_on_gpu({"train.precision=fp16", "train.micro_batch_size=4"}, testing::kGoldenF16);
}

// A run of six steps that keeps every second one, in the folder `run`; goes on from what is there.
void train_in(const fs::path& run, std::vector<std::string> overrides, double dropout = 0.1) {
  for (const std::string& one :
       {std::string("train.train_iters=6"), std::string("train.micro_batch_size=2"),
        std::string("checkpoint.save_interval=2"), std::string("checkpoint.keep_latest=0"),
        fmt::format("model.hidden_dropout={}", dropout), "run.backend=" + testing::gpu_backend()})
    overrides.push_back(one);
  const auto golden = fs::path(testing::kSourceDir) / "tests/golden/llama-gqa";
  testing::train(testing::golden_recipe(golden, run, overrides), testing::gpu_machine());
}

void expect_same_run(const fs::path& a, const fs::path& b, const std::string& what) {
  const auto one = read_metrics(a / "metrics.jsonl").steps, other = read_metrics(b / "metrics.jsonl").steps;
  ASSERT_EQ(one.size(), 6u) << what;
  ASSERT_EQ(other.size(), 6u) << what;
  const auto same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };  // of a skipped step
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_TRUE(same(one[i].loss, other[i].loss)) << what << ", step " << i + 1;
    EXPECT_TRUE(same(one[i].grad_norm, other[i].grad_norm)) << what << ", step " << i + 1;
  }
  EXPECT_TRUE(std::isfinite(one.back().grad_norm)) << what;
  for (const char* file : {"model.safetensors", "weft/optimizer.safetensors", "weft/state.json"}) {
    const std::string bytes = testing::slurp(a / "checkpoints/step-6" / file);
    ASSERT_FALSE(bytes.empty()) << what;
    EXPECT_TRUE(testing::slurp(b / "checkpoints/step-6" / file) == bytes) << what << ": " << file << " differs";
  }
}

TEST(RunsOnGpu, RepeatAndResumeToTheBit) {
  WEFT_NEEDS_GPU();
  for (const std::vector<std::string>& settings : std::vector<std::vector<std::string>>{
           {"train.precision=f32"},
           {"train.precision=bf16", "optimizer.name=muon"},
           {"train.precision=fp16", "train.initial_loss_scale=1048576", "train.loss_scale_window=2"},
           {"train.precision=bf16", "parallel.dp=2", "parallel.zero_stage=3", "run.threads=1"},
           {"train.precision=bf16", "parallel.tp=2", "parallel.pp=2", "run.threads=1"}}) {
    const std::string what = fmt::format("{}", fmt::join(settings, " "));
    testing::TempDir dir;
    train_in(dir / "run", settings);
    train_in(dir / "again", settings);
    expect_same_run(dir / "run", dir / "again", what + ", again");
    fs::copy(dir / "run", dir / "resumed", fs::copy_options::recursive);
    for (const char* step : {"step-4", "step-6"}) fs::remove_all(dir / "resumed" / "checkpoints" / step);
    train_in(dir / "resumed", settings);
    expect_same_run(dir / "run", dir / "resumed", what + ", resumed after step 2");
  }
}

TEST(RunsOnGpu, CudaGraphsChangeNoBit) {
  WEFT_NEEDS_GPU();
  for (const std::vector<std::string>& settings : std::vector<std::vector<std::string>>{
           {"train.precision=bf16"},
           {"train.precision=f32", "parallel.recompute=full"},
           {"train.precision=bf16", "parallel.dp=2", "parallel.zero_stage=3", "run.threads=1"}}) {
    const std::string what = fmt::format("{}", fmt::join(settings, " "));
    testing::TempDir dir;
    for (const char* graphs : {"off", "on"}) {
      setenv("WEFT_CUDA_GRAPHS", graphs, 1);
      train_in(dir / graphs, settings, 0);
    }
    unsetenv("WEFT_CUDA_GRAPHS");
    expect_same_run(dir / "off", dir / "on", what);
  }
}

// Weights come to the GPU and losses and logits from it.
TEST(RunsOnGpu, MeasureAndContinueTextAsTheReferenceDoes) {
  WEFT_NEEDS_GPU();
  testing::TempDir dir;
  train_in(dir / "run", {"train.precision=f32"});
  const fs::path model = model_folder_of(dir / "run", [](const std::string&) {});
  const fs::path tokens = fs::path(testing::kSourceDir) / "tests/golden/llama-gqa/tokens.bin";
  const testing::ForwardResults got = testing::forward_results(model, tokens, testing::gpu_machine());
  Recipe reference;
  reference.run.backend = BackendKind::ref;  // builds without packages have it too
  const testing::ForwardResults expected = testing::forward_results(model, tokens, machine_for(reference), kF64);
  EXPECT_NEAR(got.loss, expected.loss, 1e-5 * expected.loss);
  ASSERT_EQ(got.logits.size(), expected.logits.size());
  for (size_t v = 0; v < got.logits.size(); ++v) EXPECT_NEAR(got.logits[v], expected.logits[v], 1e-4) << v;
}

TEST(RunsOnGpu, NameTheOperationOfABadNumber) {
  WEFT_NEEDS_GPU();
  testing::TempDir dir;
  try {
    train_in(dir / "run", {"train.precision=f32", "optimizer.lr=1e300", "optimizer.min_lr=1e300"});
    FAIL() << "it trained";
  } catch (const NumericsError& e) {
    EXPECT_NE(std::string(e.what()).find("first in "), std::string::npos) << e.what();
  }
}

using LayoutsOnGpu = testing::LayoutMatrix;

// Each has a GPU where there are so many; else they share them.
TEST_F(LayoutsOnGpu, RandomOnesGiveTheLossesOfOneRankInEveryPrecision) {
  WEFT_NEEDS_GPU();
  judge_precisions(testing::gpu_backend(), 8, testing::seed_of_today());
}

}  // namespace
}  // namespace weft
