// Runs in which a machine spoils numbers on one of several ranks.
#include <gtest/gtest.h>

#include "apps/small_run.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::spill;
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
  void expect_same_bits_with_replays(const std::vector<Words>& layouts) {
    for (size_t i = 0; i < layouts.size(); ++i) {
      Words words = layouts[i];
      words.insert(words.end(), {"train.global_batch_size=8", "train.train_iters=2"});
      const std::string said = fmt::format("{}", fmt::join(words, " "));
      const std::string without = fmt::format("without-{}", i), with = fmt::format("with-{}", i);
      const Finished plain = faulty(without, "", words);
      EXPECT_EQ(plain.status, 0) << said << plain.err;
      words.push_back("train.replay_interval=1");
      const Finished f = faulty(with, "", words);
      EXPECT_EQ(f.status, 0) << said << f.err;
      EXPECT_FALSE(weights_of(with, 2).empty()) << said;
      EXPECT_TRUE(weights_of(with, 2) == weights_of(without, 2)) << said;
    }
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

// The first attempt saves two checkpoints before it; the three that follow none.
TEST_F(FaultyNumbersSlow, UnderASupervisorAStepThatIsNeverFiniteEndsInNoProgressAndIsNamed) {
  std::string faults;
  for (int attempt = 1; attempt <= 5; ++attempt)
    faults += fmt::format("nan@gradient:0:4:{0},nan@gradient_again:0:4:{0},", attempt);
  const Finished f = faulty("r", faults, {}, "supervise");
  EXPECT_EQ(f.status, 93) << f.err;
  EXPECT_EQ(causes_of("r"), Words(4, "not_finite"));
  EXPECT_EQ(events_of("r", "nonfinite").size(), 4u);
  ASSERT_EQ(events_of("r", "stopped").size(), 1u);
  EXPECT_EQ(events_of("r", "stopped")[0]["status"], 93);
  const std::string why = events_of("r", "stopped")[0]["reason"];
  EXPECT_SAYS(why, "3 attempts have come to nothing; the last: ");
  EXPECT_SAYS(why, "ended with status 88: ");
  EXPECT_SAYS(why, "step 5: loss ");
  EXPECT_SAYS(why, "on rank 0; weights and checkpoints are those of step 4");
  EXPECT_SAYS(f.err, "stopped with status 93: " + why);
  EXPECT_TRUE(saved("r", 4));
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

// Of four data parallel ranks one always computes wrongly: its own work, and that of a neighbour.
TEST_F(FaultyNumbers, ARankThatComputesWronglyIsNamedWhereItsNeighboursReplayIt) {
  const Words layout{"parallel.dp=4", "train.global_batch_size=8", "train.replay_interval=2"};
  const Finished f = faulty("r", "flip@work:2:3,flip@replayed:2:3", layout);
  EXPECT_EQ(f.status, 87) << f.err;
  EXPECT_SAYS(
      f.err,
      "step 4: rank 1 computed the work of rank 2 again, from the same weights and data, and got other bits for "
      "the gradient of ");
  EXPECT_SAYS(f.err,
              " of micro-batch 4 (the first of 2 gradients that differ); rank 2 is in more pairs that differ than any "
              "other");
  EXPECT_SAYS(f.err, "goes on from the newest, of step 2");
  EXPECT_TRUE(saved("r", 2));
  EXPECT_FALSE(saved("r", 4));
  ASSERT_EQ(events_of("r", "corrupted").size(), 1u);
  const auto event = events_of("r", "corrupted")[0];
  EXPECT_EQ(event["step"], 4);
  EXPECT_EQ(event["ranks"], std::vector<int>{2});
  EXPECT_EQ(event["micro_batch"], 4);
  EXPECT_EQ(event["work_of"], 2);
  EXPECT_EQ(event["replayed_by"], 1);
  EXPECT_EQ(event["tensors"], 2) << "the sum with that of the rank's next micro-batch too";
}

TEST_F(FaultyNumbers, AWrongGradientOfOneOfTwoRanksChangesNoWeight) {
  for (const char* fault : {"flip@work:1:2", "flip@replayed:0:2"}) {
    const Finished f = faulty(fmt::format("r{}", fault[5]), fault, {"train.replay_interval=1"});
    EXPECT_EQ(f.status, 87) << f.err;
    EXPECT_SAYS(f.err, "step 3: rank 0 computed the work of rank 1 again, ");
    EXPECT_TRUE(saved(fmt::format("r{}", fault[5]), 2));
    const auto events = events_of(fmt::format("r{}", fault[5]), "corrupted");
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0]["ranks"], (std::vector<int>{0, 1}));
  }
}

TEST_F(FaultyNumbers, AStepRunsAgainAndIsReplayedToTheBitsOfARunWithoutReplays) {
  const std::string whole = whole_weights(6);
  const Finished f = faulty("r", "nan@gradient:1:4", {"train.replay_interval=1"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "A transient fault: the step ran again");
  EXPECT_TRUE(weights_of("r", 6) == whole);
  EXPECT_TRUE(events_of("r", "corrupted").empty());
}

TEST_F(FaultyNumbers, ReplaysChangeNoBit) {
  expect_same_bits_with_replays({{"parallel.zero_stage=1"}, {"parallel.zero_stage=3", "train.numerics=invariant"}});
}

TEST_F(FaultyNumbersSlow, ReplaysChangeNoBitOnAnyLayoutAndModel) {
  const auto with_model = [&](const std::string& name, const Words& more) {
    const fs::path folder = fs::path(testing::kSourceDir) / "tests/golden" / name;
    Words words{"model.path=" + folder.string(), "data.train=" + (folder / "tokens.bin").string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect_same_bits_with_replays({{"parallel.pp=2", "train.numerics=invariant"},
                                 {"parallel.tp=2", "parallel.zero_stage=2"},
                                 {"parallel.cp=2"},
                                 {"train.precision=bf16", "train.numerics=invariant"},
                                 {"model.hidden_dropout=0.1", "parallel.pp=2", "parallel.pipeline_schedule=zb_h1"},
                                 with_model("moe-zloss-global", {"parallel.zero_stage=1"}),
                                 with_model("llama3-rope-tied", {"parallel.recompute=full", "parallel.pp=2"}),
                                 with_model("deepseek-v3-bias", {"moe.bias_update_rate=0.01"}),
                                 with_model("mtp", {"train.mtp_loss_coef=0.3"})});
}

TEST_F(FaultyNumbers, AReplayIsAskedForByAFileInTheRun) {
  const Words first{"train.train_iters=2"};
  for (const char* name : {"good", "bad", "unasked"})
    ASSERT_EQ(faulty(name, "flip@work:1:1", first).status, 0) << "no step is replayed";
  for (const char* name : {"good", "bad"}) spill(dir_ / name / "replay", "");
  const Finished good = faulty("good", "");
  ASSERT_EQ(good.status, 0) << good.err;
  EXPECT_SAYS(good.err, "step 3: replayed, as ");
  EXPECT_FALSE(fs::exists(dir_ / "good/replay"));
  ASSERT_EQ(events_of("good", "replayed").size(), 1u) << "only that step";
  EXPECT_EQ(events_of("good", "replayed")[0]["step"], 3);
  EXPECT_EQ(events_of("good", "replayed")[0]["done"], true);
  ASSERT_EQ(faulty("unasked", "").status, 0);
  EXPECT_TRUE(weights_of("good", 6) == weights_of("unasked", 6));
  const Finished bad = faulty("bad", "flip@work:1:2");
  EXPECT_EQ(bad.status, 87) << bad.err;
  EXPECT_TRUE(events_of("bad", "replayed").empty());
  EXPECT_EQ(faulty("bad", "flip@work:1:2").status, 0) << "whoever goes on is not asked again";
}

TEST_F(FaultyNumbers, ARunIsAskedForAReplayWhileItTrains) {
  testing::Process process({.args = {"train", (dir_ / "r.toml").string(), "run.dir=" + (dir_ / "r").string(),
                                     "parallel.dp=2", "train.train_iters=100000", "checkpoint.save_interval=0"}});
  EXPECT_TRUE(testing::wait_until([&] { return records_of("r") > 0; }));
  spill(dir_ / "r/replay", "");
  EXPECT_TRUE(testing::wait_until([&] { return !events_of("r", "replayed").empty(); }));
  process.send(SIGTERM);
  EXPECT_EQ(process.wait().status, 75);
}

TEST_F(FaultyNumbers, WhoAsksForAReplayThatCannotBeIsTold) {
  ASSERT_EQ(faulty("r", "", {"parallel.dp=1", "train.train_iters=2"}).status, 0);
  spill(dir_ / "r/replay", "");
  const Finished f = faulty("r", "", {"parallel.dp=1"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "r/replay asks for a replay, which cannot be: at parallel.dp = 1 there is no other rank to do it");
  EXPECT_FALSE(fs::exists(dir_ / "r/replay"));
  ASSERT_EQ(events_of("r", "replayed").size(), 1u);
  EXPECT_EQ(events_of("r", "replayed")[0]["done"], false);
}

// They are measured, and a file that asks waits for the steps behind them.
TEST_F(FaultyNumbers, TrialsOfSettingsAreNotReplayed) {
  const Words layout{
      "parallel.pp=2",        "train.autotune=true",    "train.numerics=invariant", "train.global_batch_size=8",
      "train.train_iters=12", "train.replay_interval=1"};
  EXPECT_NE(faulty("r", "kill@step:0:0", layout).status, 0) << "its folder is there";
  spill(dir_ / "r/replay", "");
  const Finished f = faulty("r", "flip@work:1:7", layout);
  ASSERT_EQ(f.status, 0) << f.err;
  ASSERT_EQ(events_of("r", "autotuned").size(), 1u);
  ASSERT_EQ(events_of("r", "autotuned")[0]["trials"].size(), 2u) << "of five steps each";
  ASSERT_EQ(events_of("r", "replayed").size(), 1u);
  EXPECT_EQ(events_of("r", "replayed")[0]["step"], 12) << "asked for before the second step behind the trials";
}

TEST_F(FaultyNumbers, WhatCannotBeReplayedIsRefused) {
  const auto refused = [&](const Words& more) {
    Words words = more;
    words.push_back("train.replay_interval=1");
    const Finished f = faulty("r", "", words);
    EXPECT_EQ(f.status, 2) << f.err;
    return f.err;
  };
  EXPECT_SAYS(refused({"train.numerics=nondeterministic"}),
              "train.replay_interval = 1 cannot run: with train.numerics = \"nondeterministic\" the same work differs");
  EXPECT_SAYS(refused({"train.global_batch_size=4", "train.rebalance=true"}),
              "train.replay_interval = 1 cannot run: ranks with unequal shares");
}

}  // namespace
}  // namespace weft
