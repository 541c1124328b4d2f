// A batch of tokens that a model does not expect at all: its step is skipped, or the run goes back and past it, to the
// bits of a run whose data does not have it.
#include "support.h"
#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/train/checkpoint_state.h"
#include "weft/train/run_length.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using SpikeWords = std::vector<std::string>;
using SpikeEvents = std::vector<nlohmann::json>;

constexpr int64_t kCircleSample = 8, kCircleBatch = 2 * kCircleSample, kBatchesOfFile = 70;
constexpr int64_t kStrangeBatch = 44, kBeforeStrange = 40;  // batches, steps: the one, and the checkpoint before it
constexpr int64_t kBatchesPast = kStrangeBatch + 1 - kBeforeStrange;  // batches that a run goes past
constexpr int64_t kCircleSteps = 47;

// Ids that go round in a circle, which the model has learnt by step 30, and some batches of others. The first id of a
// batch is also the last target of the one before: it stays.
void write_circle(const fs::path& file, int64_t ids_of_circle, int64_t batches, const std::vector<int64_t>& strange,
                  int64_t strange_ids = 400) {
  std::vector<uint16_t> ids;
  for (int64_t i = 0; i <= batches * kCircleBatch; ++i) ids.push_back(uint16_t(3 + i % ids_of_circle));
  for (const int64_t batch : strange)
    for (int64_t i = 1; i < kCircleBatch; ++i)
      ids[size_t(batch * kCircleBatch + i)] = uint16_t(100 + (37 * i + batch) % strange_ids);
  testing::spill(file, {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]});
}

// The learning rate is small from step 36 on, so that losses stand still; a limit is far above them, and far below the
// loss of what the model does not expect, which is that of chance at least.
Recipe circle_recipe(const fs::path& run, const fs::path& data, const SpikeWords& more) {
  SpikeWords all{"data.train=" + data.string(),
                 fmt::format("train.seq_length={}", kCircleSample),
                 "train.global_batch_size=2",
                 "train.micro_batch_size=1",
                 fmt::format("train.train_iters={}", kCircleSteps),
                 "train.log_grad_norms=false",
                 "optimizer.lr=0.01",
                 "optimizer.min_lr=1e-4",
                 "optimizer.lr_warmup_iters=1",
                 "optimizer.lr_decay_iters=36",
                 "train.spike_sigma_factor=50",
                 "train.spike_window=16",
                 fmt::format("checkpoint.save_interval={}", kBeforeStrange),
                 "checkpoint.keep_latest=0",
                 "run.threads=1",
                 "run.backend=cpu"};
  all.insert(all.end(), more.begin(), more.end());
  return testing::golden_recipe(fs::path(testing::kSourceDir) / "tests/golden/llama-gqa", run, all);
}

class Spikes : public ::testing::Test {
 protected:
  void train(const std::string& run, const std::string& data, const SpikeWords& more) {
    const Recipe recipe = circle_recipe(dir_ / run, dir_ / data, more);
    testing::train(recipe, machine_for(recipe));
  }
  fs::path checkpoint(const std::string& run, int64_t step) const {
    return dir_ / run / "checkpoints" / fmt::format("step-{}", step);
  }
  void expect_same(const fs::path& a, const fs::path& b) {
    const bool of_adapter = fs::exists(a / "adapter_model.safetensors");
    for (const char* file :
         {of_adapter ? "adapter_model.safetensors" : "model.safetensors", "weft/optimizer.safetensors"}) {
      ASSERT_FALSE(testing::slurp(a / file).empty()) << a << " " << file;
      EXPECT_TRUE(testing::slurp(a / file) == testing::slurp(b / file)) << a << " and " << b << " " << file;
    }
  }
  SpikeState state_of(const std::string& run, int64_t step) const {
    return read_progress(checkpoint(run, step)).spikes.value();
  }
  std::vector<StepRecord> steps_of(const std::string& run) const {
    return read_metrics(dir_ / run / "metrics.jsonl").steps;
  }
  SpikeEvents spikes_of(const std::string& run) const {
    SpikeEvents found;
    for (const std::string& line : testing::lines_of(testing::slurp(dir_ / run / "events.jsonl")))
      if (auto event = nlohmann::json::parse(line); event["event"] == "spike") found.push_back(std::move(event));
    return found;
  }
  testing::TempDir dir_;
};
using SpikesSlow = Spikes;

// A window of 16 wants 8 steps before the first that is judged, and begins anew in each phase.
TEST(SpikesOfShortRuns, AreLookedForFromTheNinthStepOnAndBeforeThatAWarningSaysSo) {
  const auto note = [](const SpikeWords& more, const std::string& phases = "") {
    SpikeWords all{"train.on_spike=skip", "train.spike_window=16"};
    all.insert(all.end(), more.begin(), more.end());
    return short_for_spikes_note(
        parse_recipe("[model]\npath = \"m\"\n[data]\ntrain = [\"a.bin\"]\n" + phases, "r.toml", all));
  };
  EXPECT_EQ(note({"train.train_iters=9"}), "");
  const std::string eight = note({"train.train_iters=8"});
  EXPECT_SAYS(eight, "train.on_spike = \"skip\" judges no step: there must be 8 steps before it, half of");
  EXPECT_SAYS(eight, "train.spike_window = 16, and the run has 8; train.spike_window = 8 judges the later half");
  EXPECT_EQ(note({"train.train_iters=8", "train.spike_window=8"}), "") << "what the advice says works";
  EXPECT_EQ(note({"train.train_iters=2", "train.spike_window=2"}), "");
  EXPECT_SAYS(note({"train.train_iters=1", "train.spike_window=2"}), "the run has 1; it needs more steps");
  EXPECT_EQ(note({"train.train_iters=3", "train.on_spike=none", "train.spike_window=128"}), "");
  const std::string at_6 = "[[phase]]\nfrom_step = 6\noptimizer.lr = 1e-4\n";
  EXPECT_SAYS(note({"train.train_iters=14"}, at_6), "and the longest phase has 8; train.spike_window = 8 judges");
  EXPECT_EQ(note({"train.train_iters=15"}, at_6), "");
}

// Five batches are so many times round the circle, so that without them the file is only shorter. The run is stopped
// between its last regular checkpoint and the spike, and keeps one checkpoint.
TEST_F(Spikes, ARunThatWasStoppedAndGoesBackIsOneThatNeverHadTheseSamples) {
  write_circle(dir_ / "strange.bin", 5, kBatchesOfFile, {kStrangeBatch});
  write_circle(dir_ / "without.bin", 5, kBatchesOfFile - kBatchesPast, {});
  const SpikeWords back{"train.on_spike=rollback", "checkpoint.keep_latest=1"};
  SpikeWords stopped = back;
  stopped.push_back("train.train_iters=42");
  train("back", "strange.bin", stopped);
  EXPECT_TRUE(fs::exists(checkpoint("back", 42)));
  ASSERT_TRUE(fs::exists(checkpoint("back", kBeforeStrange))) << "the one that the run may have to go back to is kept";
  EXPECT_TRUE(spikes_of("back").empty());
  train("back", "strange.bin", back);
  EXPECT_FALSE(fs::exists(checkpoint("back", 42))) << "of the steps that are undone";
  train("never", "without.bin", back);
  expect_same(checkpoint("never", kCircleSteps), checkpoint("back", kCircleSteps));

  const SpikeEvents events = spikes_of("back");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["step"], kStrangeBatch + 1);
  EXPECT_EQ(events[0]["batch"], kStrangeBatch);
  EXPECT_EQ(events[0]["of"], "loss");
  EXPECT_EQ(events[0]["action"], "rolled_back");
  EXPECT_EQ(events[0]["to_step"], kBeforeStrange);
  EXPECT_GT(events[0]["loss"].get<double>(), events[0]["limit"].get<double>());
  const Progressed at = read_progress(checkpoint("back", kCircleSteps));
  EXPECT_EQ(at.samples, 2 * (kCircleSteps + kBatchesPast));
  EXPECT_EQ(at.spikes->gaps, (std::vector<SpikeState::Gap>{{kBeforeStrange, kBatchesPast}}));
  EXPECT_EQ(at.spikes->batches, std::vector<int64_t>{kStrangeBatch});
  EXPECT_EQ(at.spikes->losses, state_of("never", kCircleSteps).losses);

  const auto a = steps_of("never"), b = steps_of("back");
  ASSERT_EQ(a.size(), size_t(kCircleSteps));
  ASSERT_EQ(b.size(), size_t(kCircleSteps)) << "each step once";
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].loss, b[i].loss) << "step " << i + 1;
    EXPECT_EQ(b[i].batch, int64_t(i) < kBeforeStrange ? std::nullopt : std::optional(int64_t(i) + kBatchesPast))
        << "step " << i + 1;
    EXPECT_EQ(a[i].spikes, 0) << "step " << i + 1;
  }
  EXPECT_EQ(b.back().spikes, 1);
}

// All batches are alike, so that without the strange one the run is only a step shorter.
TEST_F(Spikes, ASkippedStepChangesNothingAndLeavesNoTraceInTheUpdatesBehindIt) {
  write_circle(dir_ / "strange.bin", 4, kBatchesOfFile, {kStrangeBatch});
  write_circle(dir_ / "without.bin", 4, kBatchesOfFile, {});
  const SpikeWords skip{"train.on_spike=skip", fmt::format("checkpoint.save_interval={}", kStrangeBatch)};
  const auto until = [&](int64_t steps) {
    SpikeWords all = skip;
    all.push_back(fmt::format("train.train_iters={}", steps));
    return all;
  };
  train("skip", "strange.bin", until(kStrangeBatch + 1));
  ASSERT_EQ(spikes_of("skip").size(), 1u);
  EXPECT_EQ(spikes_of("skip")[0]["action"], "skipped");
  expect_same(checkpoint("skip", kStrangeBatch), checkpoint("skip", kStrangeBatch + 1));
  train("skip", "strange.bin", skip);
  train("never", "without.bin", until(kCircleSteps - 1));
  expect_same(checkpoint("never", kCircleSteps - 1), checkpoint("skip", kCircleSteps));
  const SpikeState state = state_of("skip", kCircleSteps);
  EXPECT_EQ(state.skipped_steps, 1);
  EXPECT_TRUE(state.gaps.empty());
  EXPECT_EQ(state.losses, state_of("never", kCircleSteps - 1).losses) << "that of the spike is not among them";
  const auto steps = steps_of("skip");
  ASSERT_EQ(steps.size(), size_t(kCircleSteps));
  EXPECT_EQ(steps[kStrangeBatch - 1].spikes, 0);
  EXPECT_EQ(steps[kStrangeBatch].spikes, 1);
  EXPECT_GT(steps[kStrangeBatch].loss, 1) << "the record has what was measured";
}

TEST_F(Spikes, OneMoreThanTheRecipeAllowsEndsTheRun) {
  write_circle(dir_ / "strange.bin", 5, kBatchesOfFile, {kStrangeBatch});
  const std::string error = testing::error_of<SpikesError>([&] {
    train("ends", "strange.bin", {"train.on_spike=rollback", "train.max_spikes=0"});
  });
  EXPECT_SAYS(error, fmt::format("step {}: loss ", kStrangeBatch + 1));
  EXPECT_SAYS(error, "These are more than train.max_spikes = 0 among the last 16 batches");
  EXPECT_SAYS(error, fmt::format("its newest checkpoint is of step {}", kBeforeStrange));
  EXPECT_SAYS(error, fmt::format("ends --batch {}`", kStrangeBatch));
  ASSERT_EQ(spikes_of("ends").size(), 1u);
  EXPECT_EQ(spikes_of("ends")[0]["action"], "ended");
  EXPECT_TRUE(fs::exists(checkpoint("ends", kBeforeStrange)));
}

// Spikes further apart than a window, but each on the way from the same checkpoint: the run does not turn in circles.
TEST_F(SpikesSlow, ThoseOnTheWayFromOneCheckpointCountTogether) {
  write_circle(dir_ / "strange.bin", 5, kBatchesOfFile, {44, 64});
  const SpikeWords few{"train.on_spike=rollback", "train.max_spikes=1", "train.train_iters=61"};
  const std::string error = testing::error_of<SpikesError>([&] { train("ends", "strange.bin", few); });
  EXPECT_SAYS(error, "more than train.max_spikes = 1 among the last 25 batches");
  ASSERT_EQ(spikes_of("ends").size(), 2u);
}

TEST_F(SpikesSlow, ARunThatIsKilledBehindItsWayBackGoesTheSameWayAgain) {
  write_circle(dir_ / "strange.bin", 5, kBatchesOfFile, {kStrangeBatch});
  train("whole", "strange.bin", {"train.on_spike=rollback"});
  fs::copy(dir_ / "whole", dir_ / "again", fs::copy_options::recursive);
  fs::remove_all(checkpoint("again", kCircleSteps));
  train("again", "strange.bin", {"train.on_spike=rollback"});
  expect_same(checkpoint("whole", kCircleSteps), checkpoint("again", kCircleSteps));
  EXPECT_EQ(testing::slurp(checkpoint("whole", kCircleSteps) / "weft/state.json"),
            testing::slurp(checkpoint("again", kCircleSteps) / "weft/state.json"));
  EXPECT_EQ(spikes_of("again").size(), 2u) << "found twice";
  EXPECT_EQ(steps_of("again").size(), size_t(kCircleSteps));
}

TEST_F(SpikesSlow, BeforeTheFirstCheckpointTheStepIsSkipped) {
  write_circle(dir_ / "strange.bin", 5, kBatchesOfFile, {kStrangeBatch});
  train("early", "strange.bin", {"train.on_spike=rollback", "checkpoint.save_interval=46"});
  ASSERT_EQ(spikes_of("early").size(), 1u);
  EXPECT_EQ(spikes_of("early")[0]["action"], "skipped");
  EXPECT_EQ(state_of("early", kCircleSteps).skipped_steps, 1);
}

// Weights in shards and in 16 bits, losses that are scaled, saves and local copies beside the steps, biases of routers
// that no gradient moves, an adapter whose base in codes is read again: each is as it was at the checkpoint. The model
// with experts has 128 ids; losses of the adapter may still fall within the window, so its limit is nearer.
TEST_F(SpikesSlow, ARunOfAnyKindGoesBackToTheBit) {
  write_circle(dir_ / "strange.bin", 5, kBatchesOfFile, {kStrangeBatch}, 28);
  write_circle(dir_ / "without.bin", 5, kBatchesOfFile - kBatchesPast, {});
  const std::vector<SpikeWords> kinds{
      {"train.precision=bf16", "parallel.dp=2", "parallel.zero_stage=3"},
      {"train.precision=bf16", "parallel.dp=2", "parallel.zero_stage=1", "parallel.tp=2"},
      {"train.precision=fp16", "train.initial_loss_scale=1024", "train.loss_scale_window=15"},
      {"checkpoint.async_save=true", "parallel.pp=2"},
      {"checkpoint.local_dir=" + (dir_ / "local").string(), "checkpoint.local_interval=3", "parallel.dp=2"},
      {"optimizer.name=adamw8bit", "optimizer.min_8bit_size=500", "parallel.tp=2"},
      {"model.path=" + std::string(testing::kSourceDir) + "/tests/golden/deepseek-v3-bias",
       "moe.bias_update_rate=0.001", "parallel.dp=2", "parallel.zero_stage=1"},
      {"adapter.kind=qlora", "train.spike_sigma_factor=20", "parallel.dp=2", "parallel.zero_stage=2"}};
  for (size_t i = 0; i < kinds.size(); ++i) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(kinds[i], " ")));
    SpikeWords all = kinds[i];
    all.push_back("train.on_spike=rollback");
    const std::string back = fmt::format("back{}", i), never = fmt::format("never{}", i);
    train(back, "strange.bin", all);
    train(never, "without.bin", all);
    ASSERT_EQ(spikes_of(back).size(), 1u);
    EXPECT_EQ(spikes_of(back)[0]["action"], "rolled_back");
    expect_same(checkpoint(never, kCircleSteps), checkpoint(back, kCircleSteps));
  }
}

TEST_F(SpikesSlow, AllLayoutsDecideAlike) {
  write_circle(dir_ / "strange.bin", 5, kBatchesOfFile, {kStrangeBatch});
  for (const char* action : {"skip", "rollback"}) {
    const SpikeWords base{"train.numerics=invariant", fmt::format("train.on_spike={}", action)};
    const std::string one = fmt::format("{}-one", action);
    train(one, "strange.bin", base);
    ASSERT_EQ(spikes_of(one).size(), 1u) << action;
    int runs = 0;
    for (const SpikeWords& layout : std::vector<SpikeWords>{
             {"parallel.dp=2"}, {"parallel.pp=2"}, {"parallel.dp=2", "parallel.pp=2", "parallel.zero_stage=2"}}) {
      SCOPED_TRACE(fmt::format("{} {}", action, fmt::join(layout, " ")));
      SpikeWords all = base;
      all.insert(all.end(), layout.begin(), layout.end());
      const std::string many = fmt::format("{}-{}", action, ++runs);
      train(many, "strange.bin", all);
      expect_same(checkpoint(one, kCircleSteps), checkpoint(many, kCircleSteps));
      EXPECT_EQ(state_of(one, kCircleSteps), state_of(many, kCircleSteps));
    }
  }
}

}  // namespace
}  // namespace weft
