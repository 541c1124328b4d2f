// Ranks that do not come, and ranks that come late.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "apps/small_run.h"
#include "weft/base/json.h"

namespace weft {
namespace {

using testing::Finished;
using Words = std::vector<std::string>;

class SlowRanks : public testing::SmallRun {
 protected:
  void TearDown() override {
    ::unsetenv("WEFT_HANG_SECONDS");
    SmallRun::TearDown();
  }
  Finished slow(const std::string& faults, const Words& more, const std::string& command = "train") {
    fail_by(faults);
    Words words{command, (dir_ / "r.toml").string(), "run.dir=" + (dir_ / "r").string(), "parallel.dp=2",
                "train.train_iters=6"};
    words.insert(words.end(), more.begin(), more.end());
    return testing::weft(words);
  }
};
using SlowRanksSlow = SlowRanks;

// What the file of a hang says of one rank's thread.
std::string stack_of(const std::string& rank, const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  const std::string all = text.str();
  const size_t at = all.find("\n" + rank + ", thread ");
  return at == std::string::npos ? "" : all.substr(at, all.find("\n\n", at) - at);
}

TEST_F(SlowRanks, AStepThatHangsEndsTheRunAndNamesWhoDidNotComeWhere) {
  ::setenv("WEFT_HANG_SECONDS", "0.5", 1);
  const Finished f = slow("hang@step:1:4", {});
  EXPECT_EQ(f.status, 86) << f.err;
  EXPECT_SAYS(f.err, "step 5: nothing has gone on for ");
  EXPECT_SAYS(f.err, "rank 1 (process ");
  EXPECT_SAYS(f.err, "is in no call, its last was all-reduce ");
  EXPECT_SAYS(f.err, "; rank 0 waits in all-reduce ");
  const auto events = events_of("r", "hang");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["step"], 5);
  const nlohmann::json waits = read_json_file(dir_ / "r/hang/rank-0.json");
  const nlohmann::json away = read_json_file(dir_ / "r/hang/rank-1.json");
  ASSERT_EQ(waits["calls"].size(), 64u);
  ASSERT_EQ(away["calls"].size(), 64u);
  EXPECT_EQ(away["calls"].back()["is"], "done");
  const auto waited =
      std::find_if(waits["calls"].begin(), waits["calls"].end(), [](const auto& c) { return c["is"] == "waited"; });
  ASSERT_NE(waited, waits["calls"].end());
  EXPECT_EQ((*waited)["number"].get<int64_t>(), away["calls"].back()["number"].get<int64_t>() + 1);
}

TEST_F(SlowRanks, AStepThatHangsLeavesTheStacksOfAllRanks) {
  ::setenv("WEFT_HANG_SECONDS", "1", 1);
  const Finished f = slow("hang@step:1:4", {});
  EXPECT_EQ(f.status, 86) << f.err;
  EXPECT_SAYS(f.err, "and the stacks of all threads in its stacks-R.txt");
  const std::string waits = stack_of("rank 0", dir_ / "r/hang/stacks-0.txt"),
                    away = stack_of("rank 1", dir_ / "r/hang/stacks-0.txt");
  EXPECT_SAYS(away, "weft::fault_point(");
  EXPECT_SAYS(away, "weft::Trainer::");
  EXPECT_SAYS(waits, "weft::LocalHub::");
  EXPECT_SAYS(waits, "weft::Trainer::");
  EXPECT_EQ(waits.find("fault_point"), std::string::npos) << waits;
  EXPECT_FALSE(std::filesystem::exists(dir_ / "r/hang/stacks-1.txt"));  // both are threads of one process
}

// As before, that it crashed ends the attempt; and what it was in is kept.
TEST_F(SlowRanks, ACrashLeavesTheStacksOfAllRanksAndTheRunGoesOn) {
  if (std::string(testing::kDiskLayer).empty()) GTEST_SKIP() << "sanitizers end a process by themselves";
  const Finished f = slow("crash@step:1:3,kill@step:0:5:2", {"--hang-seconds", "1"}, "supervise");
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(causes_of("r"), (Words{"killed", "killed", "finished"}));
  const std::string file = (dir_ / "r/crash/stacks-0.txt").string();
  EXPECT_SAYS(f.err, "weft train: rank 1 got signal 11 (Segmentation fault): " + file + " has its stack");
  EXPECT_EQ(events_of("r", "ended")[0]["reason"],
            "in step 4, ended by signal 11 (Segmentation fault); " + file + " has the stack");
  EXPECT_EQ(events_of("r", "ended")[1]["reason"], "in step 6, ended by signal 9 (Killed)");
  ASSERT_EQ(events_of("r", "crash").size(), 1u);
  EXPECT_EQ(events_of("r", "crash")[0]["signal"], SIGSEGV);
  const std::string crashed = stack_of("rank 1, which got signal 11 (Segmentation fault)", file);
  EXPECT_SAYS(crashed, "weft::fault_point(");
  EXPECT_SAYS(crashed, "weft::Trainer::");
  EXPECT_SAYS(stack_of("rank 0", file), "weft::LocalHub::");
}

TEST_F(SlowRanksSlow, UnderASupervisorAHangIsNamedByItsRanksAndTheRunGoesOn) {
  const Finished f = slow("hang@step:1:4", {"--hang-seconds", "1"}, "supervise");
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(causes_of("r"), (Words{"hang", "finished"}));
  EXPECT_SAYS(std::string(events_of("r", "ended")[0]["reason"]), "rank 1 (process ");
}

TEST_F(SlowRanksSlow, ARankThatIsSlowForFiftyStepsIsReportedAndNotEnded) {
  const Finished f = slow("drag@run:1:0", {"train.train_iters=122", "checkpoint.save_interval=0"});
  ASSERT_EQ(f.status, 0) << f.err;
  const auto events = events_of("r", "straggler");
  ASSERT_GE(events.size(), 1u);  // on a busy machine a window may see no slow rank, and fifty steps begin later
  EXPECT_EQ(events[0]["rank"], 1);
  const auto step = events[0]["step"].get<int64_t>(), since = events[0]["since_step"].get<int64_t>();
  EXPECT_EQ(step - since, 49);
  EXPECT_SAYS(f.err, fmt::format("step {}: rank 1 is slow since step {}: it computes ", step, since));
  EXPECT_GT(events[0]["compute_s"].get<double>(), events[0]["median_s"].get<double>());
}

}  // namespace
}  // namespace weft
