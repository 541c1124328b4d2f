// Runs in which a machine spoils numbers on one of several ranks.
#include <gtest/gtest.h>

#include "apps/small_run.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using Words = std::vector<std::string>;

// Of two data parallel ranks, whose sums and weights are copies of each other.
class FaultyNumbers : public testing::SmallRun {
 protected:
  Finished faulty(const std::string& name, const std::string& faults, const Words& more = {},
                  const std::string& command = "train") {
    fail_by(faults);
    Words words{command, (dir_ / "r.toml").string(), "run.dir=" + (dir_ / name).string(), "parallel.dp=2",
                "train.train_iters=6"};
    words.insert(words.end(), more.begin(), more.end());
    return testing::weft(words);
  }
  std::string whole_weights(int steps, const Words& more = {}) {
    EXPECT_EQ(faulty("whole", "", more).status, 0);
    EXPECT_FALSE(fs::exists(dir_ / "whole/events.jsonl")) << "nothing happened";
    return weights_of("whole", steps);
  }
  bool saved(const std::string& name, int step) {
    return fs::exists(dir_ / name / "checkpoints" / fmt::format("step-{}", step));
  }
};

using FaultyNumbersSlow = FaultyNumbers;

TEST_F(FaultyNumbers, AStepThatIsNotFiniteOnceRunsAgainToTheSameBits) {
  const std::string whole = whole_weights(6);
  const Finished f = faulty("r", "nan@gradient:1:4");
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "step 5: loss ");
  EXPECT_SAYS(f.err, "1 of ");
  EXPECT_SAYS(f.err, "on rank 1. A transient fault: the step ran again");
  EXPECT_EQ(weights_of("r", 6), whole);
  const auto events = events_of("r", "nonfinite");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["step"], 5);
  EXPECT_EQ(events[0]["transient"], true);
  EXPECT_EQ(events[0]["ranks"], std::vector<int>{1});
  EXPECT_SAYS(std::string(events[0]["tensor"]), "gradient of ");
}

TEST_F(FaultyNumbers, AStepThatIsNotFiniteAgainEndsTheRun) {
  const Finished f = faulty("r", "nan@gradient:0:4,nan@gradient_again:0:4");
  EXPECT_EQ(f.status, 88) << f.err;
  EXPECT_SAYS(f.err, "step 5: loss ");
  EXPECT_SAYS(f.err, "and the same when it ran again: gradient of ");
  EXPECT_SAYS(f.err, "on rank 0; weights and checkpoints are those of step 4");
  EXPECT_TRUE(saved("r", 4));
  ASSERT_EQ(events_of("r", "nonfinite").size(), 1u);
  EXPECT_EQ(events_of("r", "nonfinite")[0]["transient"], false);
}

TEST_F(FaultyNumbers, OptimizerStateThatOneRankHoldsOtherwiseIsNeverSaved) {
  const Finished f = faulty("r", "flip@moment:1:3");
  EXPECT_EQ(f.status, 87) << f.err;
  EXPECT_SAYS(f.err, "step 4: ranks 0 and 1 hold different bytes of exp_avg of embed.tokens");
  EXPECT_SAYS(f.err, "goes on from the newest, of step 2");
  EXPECT_TRUE(saved("r", 2));
  EXPECT_FALSE(saved("r", 4));
  ASSERT_EQ(events_of("r", "corrupted").size(), 1u);
  EXPECT_EQ(events_of("r", "corrupted")[0]["ranks"], (std::vector<int>{0, 1}));
}

// A bit of a weight; of the optimizer's state; an update that one rank leaves out.
TEST_F(FaultyNumbersSlow, UnderASupervisorARunWithSpoiltRanksGoesOnToTheSameBits) {
  const Words steps{"train.train_iters=10"};
  const std::string whole = whole_weights(10, steps);
  const Finished f = faulty("r", "flip@weights:1:3,flip@moment:1:5:2,skip@update:0:7:3", steps, "supervise");
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(causes_of("r"), (Words{"corrupted", "corrupted", "corrupted", "finished"}));
  std::vector<int> saved_steps;
  for (const auto& e : events_of("r", "ended")) saved_steps.push_back(e["saved_step"]);
  EXPECT_EQ(saved_steps, (std::vector<int>{2, 4, 6, 10}));
  const auto events = events_of("r", "corrupted");
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["step"], 4);
  EXPECT_EQ(events[0]["ranks"], (std::vector<int>{0, 1}));
  EXPECT_SAYS(f.err, "step 4: ranks 0 and 1 hold different bytes of embed.tokens");
  EXPECT_EQ(weights_of("r", 10), whole);
}

TEST_F(FaultyNumbers, WhereMostRanksAgreeTheOthersAreNamed) {
  const Words layout{"parallel.dp=4", "train.global_batch_size=4", "train.check_replicas_interval=1"};
  const Finished f = faulty("r", "flip@weights:2:4", layout);
  EXPECT_EQ(f.status, 87) << f.err;
  EXPECT_SAYS(f.err, "step 5: rank 2 holds other bytes than ranks 0, 1, 3 of embed.tokens");
  EXPECT_SAYS(f.err, "goes on from the newest, of step 4");
  EXPECT_TRUE(saved("r", 4));
}

TEST_F(FaultyNumbers, ValuesThatZeroGivesToAllRanksAreCompared) {
  const Words layout{"parallel.zero_stage=1", "train.check_replicas_interval=3"};
  const Finished f = faulty("r", "flip@values:1:5", layout);
  EXPECT_EQ(f.status, 87) << f.err;
  EXPECT_SAYS(f.err, "step 6: ranks 0 and 1 hold different bytes of embed.tokens, as layers read it");
}

}  // namespace
}  // namespace weft
