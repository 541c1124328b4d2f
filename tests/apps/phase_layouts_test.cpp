// Phases with layouts of their own: a process for each, one behind the other.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "apps/small_run.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::slurp;
using testing::spill;

const std::string kOtherLayouts =
    "[[phase]]\nfrom_step = 4\noptimizer.lr = 5e-4\n{}[[phase]]\nfrom_step = 7\ntrain.global_batch_size = 4\n{}";
const std::string kDp = "parallel.dp = 2\nparallel.zero_stage = 3\n",
                  kPp = "parallel.dp = 1\nparallel.zero_stage = 0\nparallel.pp = 2\n";

class PhaseLayouts : public testing::SupervisedRun {
 protected:
  void SetUp() override {
    SupervisedRun::SetUp();
    base_ = slurp(dir_ / "r.toml");
  }
  void put(const std::string& first, const std::string& second) {
    spill(dir_ / "r.toml", base_ + fmt::format(fmt::runtime(kOtherLayouts), first, second));
  }
  // All on one rank.
  std::string whole_weights() {
    put("", "");
    const Finished f = run("train", {"train.numerics=invariant"}, "whole");
    EXPECT_EQ(f.status, 0) << f.err;
    return weights_of("whole");
  }
  std::vector<int64_t> ranks_of_attempts() {
    std::vector<int64_t> ranks;
    for (const auto& e : events_of("r", "started")) ranks.push_back(e["ranks"]);
    return ranks;
  }
  std::string base_;
};

using PhaseLayoutsSlow = PhaseLayouts;

TEST_F(PhaseLayouts, EachBeginsFromWhatTheOneBeforeHasSavedToTheSameBits) {
  const std::string whole = whole_weights();
  put(kDp, kPp);
  const Finished f = supervise("r", "", {"train.numerics=invariant", "checkpoint.save_interval=0", "--attempts", "1"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(ranks_of_attempts(), (std::vector<int64_t>{1, 2, 2}));
  EXPECT_EQ(causes_of("r"), (std::vector<std::string>{"moved", "moved", "finished"})) << "which counts as no failure";
  ASSERT_EQ(events_of("r", "layout").size(), 2u);
  EXPECT_EQ(events_of("r", "layout")[0]["layout"], "dp 2, micro-batch 1, zero 3");
  EXPECT_EQ(events_of("r", "ended")[1]["saved_step"], 7);
  EXPECT_SAYS(f.err, "step 4: the next phase has another layout");
  EXPECT_EQ(records_of("r"), records_of("whole"));
  EXPECT_TRUE(weights_of("r") == whole);
  EXPECT_TRUE(file_of("r", 12, "weft/optimizer.safetensors") == file_of("whole", 12, "weft/optimizer.safetensors"));
  EXPECT_SAYS(slurp(dir_ / "r/recipe.toml"), "\ndp = 1\n") << "as it was given";
}

// Plainly, the same command goes on, phase by phase.
TEST_F(PhaseLayoutsSlow, WithoutASupervisorTheSameCommandGoesOn) {
  put(kDp, kPp);
  for (const int64_t step : {4, 7}) {
    const Finished f = run("train", {}, "r");
    EXPECT_EQ(f.status, 75) << f.err;
    EXPECT_SAYS(f.err,
                fmt::format("step {}: the next phase has another layout; the same command goes on with it", step));
    EXPECT_FALSE(file_of("r", int(step), "model.safetensors").empty());
  }
  const Finished last = run("train", {}, "r");
  EXPECT_EQ(last.status, 0) << last.err;
  EXPECT_SAYS(last.err, "2 ranks as threads of this process: pp 2");
}

TEST_F(PhaseLayoutsSlow, AnAttemptThatFailsGoesOnWithTheLayoutOfItsPhase) {
  const std::string whole = whole_weights();
  put(kDp, kPp);
  const Finished f = supervise("r", "kill@step:0:5:2,kill@step:1:10:4", {"train.numerics=invariant"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(ranks_of_attempts(), (std::vector<int64_t>{1, 2, 2, 2, 2}));
  EXPECT_EQ(causes_of("r"), (std::vector<std::string>{"moved", "killed", "moved", "killed", "finished"}));
  EXPECT_TRUE(weights_of("r") == whole);
}

// The newest checkpoint is that with which the second layout begins: it is damaged, and the one before is of the first.
TEST_F(PhaseLayouts, WhereTheCheckpointOfTheFirstStepIsDamagedTheLayoutBeforeGoesOn) {
  const std::string whole = whole_weights();
  put("parallel.dp = 2\n", "parallel.dp = 4\n");  // 4 ranks cannot share the batch of before
  const std::vector<std::string> invariant{"train.numerics=invariant"};
  ASSERT_EQ(run("train", invariant, "r").status, 75);
  ASSERT_EQ(run("train", invariant, "r").status, 75);
  const fs::path weights = dir_ / "r/checkpoints/step-7/model.safetensors";
  std::string bytes = slurp(weights);
  bytes[bytes.size() - 1] = char(bytes[bytes.size() - 1] ^ 1);
  spill(weights, bytes);
  const Finished f = supervise("r", "", invariant);
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(ranks_of_attempts(), (std::vector<int64_t>{4, 2, 4}));
  EXPECT_TRUE(weights_of("r") == whole);
}

TEST_F(PhaseLayoutsSlow, OnAFleetAPhaseWaitsForItsRanks) {
  const std::string saved = (dir_ / "r/checkpoints/step-4").string(), asked = (dir_ / "asked").string();
  put("parallel.dp = 2\n", "");
  spill(dir_ / "n.sh", "if ! test -e " + saved + "; then echo 1; elif test -e " + asked + "; then echo 3; else touch " +
                           asked + "; echo 1; fi\n");
  const Finished f = supervise(
      "r", "", {"fleet.poll_seconds=0", "fleet.available='sh " + (dir_ / "n.sh").string() + "'", "--attempts", "1"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(ranks_of_attempts(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(events_of("r", "waiting").size(), 1u);
}

}  // namespace
}  // namespace weft
