// A run that was stopped, on any layout: it goes on as the run that was not.
#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/train/checkpoint_state.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Settings = std::vector<std::string>;

constexpr int64_t kSteps = 5, kStoppedAfter = 2;  // and the copy of a weight that was not loaded shows two steps later

Settings operator+(Settings a, const Settings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A small model whose embedding is its head, with dropout and a checkpoint after every second step.
Recipe recipe_of(const fs::path& run, const Settings& settings) {
  return testing::golden_recipe(
      fs::path(testing::kSourceDir) / "tests/golden/llama3-rope-tied", run,
      Settings{"train.seq_length=16", fmt::format("train.train_iters={}", kSteps), "train.micro_batch_size=1",
               "optimizer.lr_warmup_iters=1", "model.hidden_dropout=0.1", "model.attention_dropout=0.1",
               fmt::format("checkpoint.save_interval={}", kStoppedAfter), "checkpoint.keep_latest=0", "run.threads=1",
               "run.backend=cpu"} +
          settings);
}
void train(const fs::path& run, const Settings& settings) {
  const Recipe recipe = recipe_of(run, settings);
  testing::train(recipe, machine_for(recipe));
}

void expect_same_end(const fs::path& whole, const fs::path& resumed) {
  const std::string last = fmt::format("checkpoints/step-{}", kSteps);
  for (const char* file : {"model.safetensors", "weft/optimizer.safetensors", "weft/state.json"}) {
    ASSERT_FALSE(testing::slurp(whole / last / file).empty()) << file;
    EXPECT_TRUE(testing::slurp(whole / last / file) == testing::slurp(resumed / last / file)) << file;
  }
  const auto a = read_metrics(whole / "metrics.jsonl").steps, b = read_metrics(resumed / "metrics.jsonl").steps;
  ASSERT_EQ(a.size(), size_t(kSteps));
  ASSERT_EQ(b.size(), size_t(kSteps));
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].loss, b[i].loss) << "step " << i + 1;
    EXPECT_EQ(a[i].lr, b[i].lr) << "step " << i + 1;
    EXPECT_EQ(a[i].loss_scale, b[i].loss_scale) << "step " << i + 1;
    EXPECT_EQ(a[i].skipped_steps, b[i].skipped_steps) << "step " << i + 1;
  }
}

// The run as it was after a step, under another name.
void go_back(const fs::path& run, const fs::path& to) {
  fs::copy(run, to, fs::copy_options::recursive);
  for (int64_t step = kStoppedAfter + 1; step <= kSteps; ++step)
    fs::remove_all(to / fmt::format("checkpoints/step-{}", step));
}

void expect_goes_on(const Settings& settings) {
  SCOPED_TRACE(fmt::format("{}", fmt::join(settings, " ")));
  testing::TempDir dir;
  train(dir / "whole", settings);
  go_back(dir / "whole", dir / "resumed");
  train(dir / "resumed", settings);
  expect_same_end(dir / "whole", dir / "resumed");
}

// The stage with the head has a copy of the embedding, with masters and optimizer state that no checkpoint has twice.
TEST(Resume, OfATiedWeightOnTwoStagesGoesOnToTheBit) {
  expect_goes_on({"parallel.pp=2"});
  expect_goes_on({"parallel.pp=2", "parallel.tp=2", "optimizer.name=muon"});
  expect_goes_on({"parallel.pp=2", "parallel.tp=2", "optimizer.name=adamw8bit", "optimizer.min_8bit_size=500"});
}

TEST(Resume, TensorsOfCodesAreOfTheStateThatTheyStandFor) {
  EXPECT_EQ(state_of_entry("blocks.0.attn.qkv.weight.exp_avg"), "exp_avg");
  EXPECT_EQ(state_of_entry("blocks.0.attn.qkv.weight.exp_avg.codes"), "exp_avg");
  EXPECT_EQ(state_of_entry("blocks.0.attn.qkv.weight.exp_avg_sq.absmax"), "exp_avg_sq");
}

// 16-bit values are nowhere whole: they must be made from the masters that were loaded.
TEST(Resume, OfShardedWeightsIn16BitsGoesOnToTheBit) {
  expect_goes_on({"train.precision=bf16", "parallel.dp=2", "parallel.zero_stage=3"});
  expect_goes_on({"train.precision=bf16", "parallel.dp=2", "parallel.zero_stage=1", "parallel.tp=2"});
  expect_goes_on({"train.precision=bf16", "parallel.dp=2", "parallel.zero_stage=3", "parallel.pp=2"});
}

// All of the first steps overflow, and the scale does not fall before the fourth of them; or none does, and it doubles
// after the third; or it falls at each of the first two and then fits.
TEST(Resume, OfARunThatScalesItsLossGoesOnToTheBit) {
  const Settings fp16{"train.precision=fp16"};
  expect_goes_on(fp16 + Settings{"train.initial_loss_scale=1073741824", "train.hysteresis=4"});
  expect_goes_on(fp16 + Settings{"train.initial_loss_scale=1024", "train.loss_scale_window=3"});
  expect_goes_on(fp16 + Settings{"train.initial_loss_scale=16777216", "train.hysteresis=1"});
}

// What one rank has saved, any layout goes on with, and the end is that of the one rank.
void expect_goes_on_as(const Settings& one_rank, const std::vector<Settings>& layouts) {
  const Settings invariant = one_rank + Settings{"train.numerics=invariant"};
  testing::TempDir dir;
  train(dir / "whole", invariant);
  for (const Settings& layout : layouts) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(layout, " ")));
    testing::TempDir here;
    go_back(dir / "whole", here / "resumed");
    train(here / "resumed", invariant + layout);
    expect_same_end(dir / "whole", here / "resumed");
  }
}
TEST(ResumeSlow, OfOneRanksCheckpointIsTheSameOnAnyLayout) {
  expect_goes_on_as({}, {{"parallel.pp=2"},
                         {"parallel.pp=2", "parallel.dp=2", "parallel.zero_stage=3"},
                         {"parallel.dp=4", "parallel.zero_stage=2", "parallel.zero_shard_size=2"},
                         {"parallel.pp=4", "parallel.pipeline_schedule=zb_h1"},
                         {"parallel.dp=2", "parallel.micro_batches=[5, 3]", "parallel.zero_stage=1"}});
}

// The corrections of routers are part of the model: they move on from where they were.
TEST(ResumeSlow, OfCorrectionsThatLoadsMoveGoesOnToTheBit) {
  const std::string model = (fs::path(testing::kSourceDir) / "tests/golden/deepseek-v3-bias").string();
  const Settings moved{"model.path=" + model, "data.train=" + model + "/tokens.bin", "moe.bias_update_rate=0.01"};
  expect_goes_on(moved + Settings{"train.precision=bf16", "parallel.dp=2", "parallel.zero_stage=3", "parallel.tp=2"});
  expect_goes_on_as(moved, {{"parallel.pp=2"}, {"parallel.dp=4", "parallel.zero_stage=2"}});
}

}  // namespace
}  // namespace weft
