// Experts on ranks of their own, in whole runs: room for their rows, what is too much, checkpoints across layouts.
#include "train/golden.h"
#include "train/late_backend.h"
#include "weft/apps/backends.h"
#include "weft/sharding/dispatch.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Settings = std::vector<std::string>;

// Mixtral with four experts, two of a token.
class ExpertParallel : public ::testing::Test {
 protected:
  fs::path train(const Settings& settings, const std::string& run = "") {
    const fs::path dir = dir_ / (run.empty() ? fmt::format("run{}", runs_++) : run);
    Settings all{"train.seq_length=16",
                 "train.train_iters=4",
                 "train.micro_batch_size=1",
                 "optimizer.lr_warmup_iters=1",
                 "checkpoint.save_interval=2",
                 "checkpoint.keep_latest=0",
                 "run.threads=1"};
    all.insert(all.end(), settings.begin(), settings.end());
    const Recipe recipe = testing::golden_recipe(fs::path(testing::kSourceDir) / "tests/golden/mixtral", dir, all);
    testing::train(recipe, device_(machine_for(recipe)));
    return dir;
  }
  static std::vector<StepRecord> steps_of(const fs::path& run) { return read_metrics(run / "metrics.jsonl").steps; }
  static std::string weights_of(const fs::path& run) {
    return testing::slurp(run / "checkpoints/step-4/weft/optimizer.safetensors");
  }
  static int64_t dropped_in(const fs::path& run) {
    int64_t pairs = 0;
    for (const StepRecord& step : steps_of(run))
      for (const int64_t n : step.dropped) pairs += n;
    return pairs;
  }

  testing::TempDir dir_;
  int runs_ = 0;
  std::function<Machine(Machine)> device_ = [](Machine machine) { return machine; };
};

TEST_F(ExpertParallel, RoomThatIsEnoughGivesTheBitsOfRoomForAll) {
  const Settings layout{"parallel.dp=2", "parallel.ep=2"};
  const auto with = [&](const Settings& more) {
    Settings all = layout;
    all.insert(all.end(), more.begin(), more.end());
    return train(all);
  };
  const fs::path all = with({}), enough = with({"moe.capacity_factor=1.9"});
  const fs::path dropless = with({"moe.capacity_factor=1.9", "moe.overflow=drop"});
  ASSERT_FALSE(weights_of(all).empty());
  EXPECT_TRUE(weights_of(enough) == weights_of(all));
  EXPECT_TRUE(weights_of(dropless) == weights_of(all));
  EXPECT_LT(steps_of(enough)[0].memory_bytes, steps_of(all)[0].memory_bytes);
  EXPECT_TRUE(steps_of(all)[0].dropped.empty());
  EXPECT_EQ(steps_of(dropless)[0].dropped, std::vector<int64_t>(steps_of(dropless)[0].expert_load.size(), 0));
}

TEST_F(ExpertParallel, DropsAreCountedAndRepeatToTheBit) {
  const Settings layout{"parallel.dp=2",         "parallel.ep=2",     "parallel.tp=2",
                        "moe.capacity_factor=1", "moe.overflow=drop", "parallel.recompute=full"};
  const fs::path once = train(layout), again = train(layout);
  EXPECT_TRUE(weights_of(once) == weights_of(again));
  EXPECT_GT(dropped_in(once), 0);
  for (const StepRecord& step : steps_of(once)) {
    ASSERT_EQ(step.dropped.size(), step.expert_load.size());
    for (size_t l = 0; l < step.dropped.size(); ++l) {
      int64_t pairs = 0;
      for (const int64_t n : step.expert_load[l]) pairs += n;
      EXPECT_EQ(pairs, 2 * 16 * 8) << "the load counts what routers chose";
      EXPECT_LT(step.dropped[l], pairs / 2);
    }
  }
}

using ExpertParallelSlow = ExpertParallel;

// Where the host must wait before it looks, and copy what it looks at.
TEST_F(ExpertParallelSlow, RowsGoTheSameWayOnDevices) {
  const Settings layout{"parallel.dp=2", "parallel.ep=2", "moe.capacity_factor=1", "moe.overflow=drop"};
  const fs::path cores = train(layout);
  for (const auto& device : {testing::late, testing::apart}) {
    device_ = device;
    const fs::path there = train(layout);
    EXPECT_TRUE(weights_of(there) == weights_of(cores));
    EXPECT_EQ(dropped_in(there), dropped_in(cores));
  }
}

// The ranks of other stages, and those of the other tensor-parallel rank, learn of it.
TEST_F(ExpertParallel, MoreRowsThanThereIsRoomForEndTheRunByName) {
  for (const Settings& layout :
       {Settings{"parallel.dp=2"}, Settings{"parallel.dp=4", "parallel.pp=2", "parallel.zero_stage=3"},
        Settings{"parallel.dp=2", "parallel.tp=2", "parallel.recompute=selective"}}) {
    Settings all = layout;
    all.insert(all.end(), {"parallel.ep=2", "moe.capacity_factor=1"});
    try {
      train(all);
      ADD_FAILURE() << "it trained";
    } catch (const CapacityError& e) {
      EXPECT_SAYS(std::string(e.what()), ".mlp: the experts of expert-parallel rank ");
      EXPECT_SAYS(std::string(e.what()), "room for 32 by moe.capacity_factor = 1; set it to 1.");
    }
  }
}

TEST_F(ExpertParallelSlow, ACheckpointGoesOnWithOtherRanksForItsExperts) {
  const Settings ref{"run.backend=ref"};
  const auto with = [&](Settings more) {
    more.insert(more.end(), ref.begin(), ref.end());
    return more;
  };
  const std::vector<StepRecord> one = steps_of(train(ref));
  const Settings layouts[] = {{},
                              {"parallel.dp=4", "parallel.ep=4", "parallel.zero_stage=1"},
                              {"parallel.dp=4", "parallel.ep=2", "parallel.zero_stage=3", "parallel.tp=2"}};
  // Each goes on with the checkpoint of the one before it, the first with the last one's.
  const Settings* before = &layouts[std::size(layouts) - 1];
  for (const Settings& layout : layouts) {
    const fs::path whole = train(with(*std::exchange(before, &layout)));
    const std::string name = fmt::format("then {}", fmt::join(layout, " "));
    fs::copy(whole, dir_ / name, fs::copy_options::recursive);
    for (const char* step : {"checkpoints/step-3", "checkpoints/step-4"}) fs::remove_all(dir_ / name / step);
    const std::vector<StepRecord> steps = steps_of(train(with(layout), name));
    ASSERT_EQ(steps.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_NEAR(steps[i].loss, one[i].loss, 1e-11 * one[i].loss) << name << ", step " << i + 1;
      EXPECT_NEAR(steps[i].grad_norm, one[i].grad_norm, 1e-11 * one[i].grad_norm) << name << ", step " << i + 1;
    }
  }
}

}  // namespace
}  // namespace weft
