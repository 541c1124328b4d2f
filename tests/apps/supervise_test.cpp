// `weft supervise`: what it does when an attempt ends, and whole runs that are made to fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "apps/small_run.h"
#include "weft/apps/attempts.h"
#include "weft/apps/commands.h"
#include "weft/apps/rank_processes.h"
#include "weft/base/host_name.h"
#include "weft/records/clock.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;

AttemptEnd ended_with(int status) {
  AttemptEnd end;
  end.raw = status << 8;
  return end;
}
AttemptEnd ended_by(int signal_number) {
  AttemptEnd end;
  end.raw = signal_number;
  return end;
}

TEST(Attempts, EndAsTheRunSaidItDid) {
  AttemptEnd finished = ended_with(0);
  EXPECT_EQ(cause_of(finished), AttemptCause::ended_early);
  finished.last = {.section = RunSection::finished, .step = 9, .number = 4};
  EXPECT_EQ(cause_of(finished), AttemptCause::finished);
  EXPECT_EQ(cause_of(ended_with(75)), AttemptCause::preempted);
  EXPECT_EQ(cause_of(ended_with(2)), AttemptCause::usage);
  EXPECT_EQ(cause_of(ended_with(88)), AttemptCause::not_finite);
  EXPECT_EQ(cause_of(ended_with(90)), AttemptCause::no_checkpoint);
  EXPECT_EQ(cause_of(ended_with(91)), AttemptCause::spikes);
  EXPECT_EQ(cause_of(ended_with(64)), AttemptCause::wrong_world);
  EXPECT_EQ(cause_of(ended_with(1)), AttemptCause::failed);
  EXPECT_EQ(cause_of(ended_with(128 + SIGSEGV)), AttemptCause::killed);
  AttemptEnd killed = ended_by(SIGKILL);
  EXPECT_EQ(cause_of(killed), AttemptCause::killed);
  killed.out_of_memory = true;
  EXPECT_EQ(cause_of(killed), AttemptCause::out_of_memory);
  killed.hang = Hang{.section = RunSection::step, .seconds = 12, .where = ""};
  EXPECT_EQ(cause_of(killed), AttemptCause::hang);
}

TEST(Attempts, ThoseWithoutProgressAreCountedAndWaitLonger) {
  Attempts attempts(3);
  const AttemptEnd killed = ended_by(SIGKILL);
  EXPECT_EQ(attempts.judge(killed, true).delay_s, 0);
  EXPECT_EQ(attempts.judge(killed, false).delay_s, 1);
  EXPECT_EQ(attempts.judge(killed, false).delay_s, 2);
  EXPECT_EQ(attempts.judge(killed, true).delay_s, 0);
  EXPECT_TRUE(attempts.judge(killed, false).again);
  EXPECT_TRUE(attempts.judge(killed, false).again);
  const Attempts::Verdict last = attempts.judge(killed, false);
  EXPECT_FALSE(last.again);
  EXPECT_EQ(last.status, 93);
  EXPECT_LE(Attempts(1000).judge(killed, false).delay_s, 60);
}

TEST(Attempts, ARunThatCannotRunIsNotTriedAgainUnlessItDidRun) {
  EXPECT_EQ(Attempts(3).judge(ended_with(2), false).status, 2);
  Attempts later(3);
  later.judge(ended_by(SIGKILL), true);
  EXPECT_TRUE(later.judge(ended_with(2), false).again);
}

TEST(Attempts, OfARunThatWasAskedToStopNoneFollows) {
  AttemptEnd end = ended_with(75);
  EXPECT_TRUE(Attempts(3).judge(end, false).again) << "somebody else has stopped the attempt";
  end.asked = true;
  EXPECT_EQ(Attempts(3).judge(end, true).status, 75);
  end.by_interrupt = true;
  EXPECT_EQ(Attempts(3).judge(end, true).status, 130);
  for (const int status : {89, 88, 1}) {
    end = ended_with(status);
    end.asked = true;
    EXPECT_EQ(Attempts(3).judge(end, false).status, status);
  }
  for (AttemptEnd early : {ended_by(SIGTERM), ended_with(128 + SIGTERM)}) {  // the second: a launcher's status
    EXPECT_EQ(cause_of(early), AttemptCause::killed) << "by somebody else";
    early.asked = true;
    EXPECT_EQ(cause_of(early), AttemptCause::preempted) << "before it listened, by what the supervisor sent";
    EXPECT_EQ(Attempts(3).judge(early, false).status, 75);
  }
  end = ended_by(SIGKILL);
  end.asked = end.at_once = true;
  EXPECT_EQ(Attempts(3).judge(end, false).status, 130);
}

TEST(Attempts, OneThatWasMovedIsNeitherAFailureNorProgress) {
  Attempts attempts(2);
  EXPECT_TRUE(attempts.judge(ended_by(SIGKILL), false).again);
  AttemptEnd moved = ended_with(75);
  moved.to_move = true;
  EXPECT_EQ(cause_of(moved), AttemptCause::moved);
  EXPECT_TRUE(attempts.judge(moved, false).again);
  EXPECT_EQ(attempts.judge(moved, true).delay_s, 0);
  EXPECT_EQ(attempts.judge(ended_by(SIGKILL), false).status, 93);
  moved.to_yield = true;
  EXPECT_EQ(cause_of(moved), AttemptCause::yielded);
  EXPECT_TRUE(Attempts(1).judge(moved, false).again);
  moved.asked = true;
  EXPECT_EQ(Attempts(3).judge(moved, true).status, 75) << "somebody asked it to stop as well";
}

TEST(SectionLimits, AreTenTimesTheLongestSoFar) {
  const SectionLimits limits{.least_s = 10, .first_s = 3600};
  const auto limit = [&](RunSection section, double longest) {
    return limits.limit_s({.section = section, .step = 1, .number = 1, .longest_s = longest});
  };
  EXPECT_EQ(limit(RunSection::step, 0), 3600);
  EXPECT_EQ(limit(RunSection::step, 0.5), 10);
  EXPECT_EQ(limit(RunSection::step, 7), 70);
  EXPECT_EQ(limit(RunSection::save, 0), 3600);
  EXPECT_EQ(limit(RunSection::save, 0.5), 600);
  EXPECT_EQ(limit(RunSection::evaluation, 100), 1000);
  EXPECT_EQ(limit(RunSection::setup, 3), 3600) << "to go on may take longer than to begin";
}

using Supervise = testing::SupervisedRun;
using SuperviseSlow = Supervise;

TEST_F(Supervise, ARunThatFailsGoesOnToTheSameEnd) {
  const std::string whole = whole_weights();
  const Finished f = supervise("r", "kill@step:0:3,exit0@step:0:5:2,segv@save:0:8:3", {});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(causes_of("r"), (std::vector<std::string>{"killed", "ended_early", "killed", "finished"}));
  EXPECT_EQ(events_of("r", "ended")[0]["saved_step"], 2);
  EXPECT_EQ(weights_of("r"), whole);
  EXPECT_SAYS(f.err, "weft supervise: in step 4, ended by signal 9");
  EXPECT_SAYS(f.err, "starting again, the newest checkpoint is of step 2");
}

TEST_F(Supervise, ARunThatHangsIsEndedAndGoesOn) {
  const std::string whole = whole_weights();
  const Finished f = supervise("r", "hang@step:0:4,stop@step:0:6:2", {"--hang-seconds", "1.5"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(causes_of("r"), (std::vector<std::string>{"hang", "hang", "finished"}));
  EXPECT_EQ(events_of("r", "ended")[0]["section"], "step");
  EXPECT_EQ(events_of("r", "ended")[0]["step"], 4);
  EXPECT_SAYS(std::string(events_of("r", "ended")[1]["reason"]), "has been stopped by a signal");
  EXPECT_EQ(weights_of("r"), whole);
}

TEST_F(Supervise, AnAttemptThatBringsNoCheckpointIsNoProgress) {
  EXPECT_EQ(supervise("r", "kill@step:0:1", {"--attempts", "1"}).status, 93);
  EXPECT_EQ(events_of("r", "ended")[0]["saved_step"], 0);
}

TEST_F(SuperviseSlow, ItGivesUpAfterThreeAttemptsWithoutProgress) {
  const std::string whole = whole_weights();
  const Finished f = supervise("r", "kill@step:0:1,abort@step:0:1:2,exit3@step:0:1:3", {});
  EXPECT_EQ(f.status, 93);
  EXPECT_SAYS(f.err, "3 attempts have come to nothing; the last: in step 2, ended with status 3");
  EXPECT_EQ(events_of("r", "stopped")[0]["status"], 93);
  EXPECT_FALSE(fs::exists(dir_ / "r/checkpoints/step-2"));
  EXPECT_EQ(supervise("r", "", {}).status, 0);
  EXPECT_EQ(weights_of("r"), whole);
}

TEST_F(SuperviseSlow, WhereNoCheckpointIsWholeItGivesUpAndTouchesNone) {
  ASSERT_EQ(supervise("r", "").status, 0);
  const fs::path all = dir_ / "r/checkpoints";
  for (const auto& one : fs::directory_iterator(all))
    if (one.is_directory()) fs::resize_file(one.path() / "model.safetensors", 0);
  const auto before = testing::bytes_of_folder(all);
  const Finished f = supervise("r", "", {"train.train_iters=14"});
  EXPECT_EQ(f.status, 93) << f.err;
  EXPECT_EQ(causes_of("r"), (std::vector<std::string>{"finished", "no_checkpoint", "no_checkpoint", "no_checkpoint"}));
  ASSERT_EQ(events_of("r", "stopped").size(), 1u);
  EXPECT_EQ(events_of("r", "stopped")[0]["status"], 93);
  const std::string why = events_of("r", "stopped")[0]["reason"];
  EXPECT_SAYS(why, "3 attempts have come to nothing; the last: ");
  EXPECT_SAYS(why, "ended with status 90: ");
  EXPECT_SAYS(why, "none of its checkpoints is whole");
  EXPECT_SAYS(why, "step-12/model.safetensors: has 0 bytes");
  EXPECT_SAYS(f.err, "stopped with status 93: " + why);
  EXPECT_TRUE(testing::bytes_of_folder(all) == before);
  EXPECT_EQ(records_of("r"), 12u);
}

TEST_F(Supervise, WhatCannotRunIsRefusedOnce) {
  const Finished f = supervise("r", "", {"parallel.tp=7"});
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "parallel.tp = 7 cannot run");
  EXPECT_FALSE(fs::exists(dir_ / "r"));
  EXPECT_EQ(testing::weft({"supervise"}).status, 2);
  const Finished missing = supervise("r", "", {"data.train=nowhere.bin", "--attempts", "2"});
  EXPECT_NE(missing.status, 0);
  EXPECT_SAYS(missing.err, "nowhere.bin");
}

TEST_F(SuperviseSlow, AskedToStopItSavesAndTheSameCommandGoesOn) {
  const std::string whole = whole_weights();
  struct Case {
    const char* name;
    int signal;
  };
  for (const Case& c : {Case{"term", SIGTERM}, {"usr1", SIGUSR1}, {"hup", SIGHUP}}) {
    SCOPED_TRACE(c.name);
    fail_by("slow@step:0:5");
    testing::Process process({.args = words(c.name, {"checkpoint.save_interval=0"})});
    ASSERT_TRUE(testing::wait_until([&] { return records_of(c.name) >= 5; }));
    process.send(c.signal);
    const Finished f = process.wait();
    EXPECT_EQ(f.status, 75) << f.err;
    EXPECT_EQ(causes_of(c.name), std::vector<std::string>{"preempted"});
    EXPECT_TRUE(fs::exists(dir_ / c.name / "checkpoints/step-6")) << f.err;
    ASSERT_EQ(supervise(c.name, "", {"checkpoint.save_interval=0"}).status, 0);
    EXPECT_EQ(weights_of(c.name), whole);
  }
}

// The run is asked to stop while it writes a checkpoint. It may finish the save; or it is ended before, by a second
// SIGTERM, or since its supervisor is killed. In each case all that is named a checkpoint is whole.
TEST_F(SuperviseSlow, ARequestToStopDuringASaveTearsNoCheckpoint) {
  const std::string whole = whole_weights();
  struct Case {
    const char* name;
    int second;  // signal; 0: none
    int status;
    bool is_saved;
  };
  for (const Case& c : {Case{"once", 0, 75, true}, {"twice", SIGTERM, 130, false}, {"killed", SIGKILL, 137, false}}) {
    fail_by("slow@copied:0:6,slow@written:0:6");
    testing::Process process({.args = words(c.name, {"checkpoint.keep_latest=0"})});
    const fs::path all = dir_ / c.name / "checkpoints";
    ASSERT_TRUE(testing::wait_until([&] { return fs::exists(all / "step-6.tmp"); })) << c.name;
    process.send(SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // two at once count as one
    if (c.second != 0) process.send(c.second);
    const Finished f = process.wait();
    EXPECT_EQ(f.status, c.status) << c.name << f.err;
    EXPECT_EQ(fs::exists(all / "step-6"), c.is_saved) << c.name;
    EXPECT_TRUE(fs::exists(all / "step-4")) << c.name;
    const Finished again = supervise(c.name, "", {"checkpoint.keep_latest=0"});
    ASSERT_EQ(again.status, 0) << c.name << again.err;
    EXPECT_SAYS(again.err, c.is_saved ? "step-6, after step 6" : "step-4, after step 4");
    EXPECT_EQ(weights_of(c.name), whole) << c.name;
    for (const auto& left : fs::directory_iterator(all)) EXPECT_EQ(left.path().extension(), "") << left.path();
  }
}

// A save of a checkpoint, a text that was being tokenized, a file that was being replaced.
TEST_F(Supervise, WhatAKilledRunWasWritingIsGoneWhenItGoesOn) {
  ASSERT_NE(supervise("r", "kill@step:0:5", {"--attempts", "1"}).status, 2);
  const fs::path run = dir_ / "r";
  const std::vector<fs::path> cut_off{run / "checkpoints/step-3.tmp", run / "tokens/text.bin.tmp-a1b2c3",
                                      run / "reference.bin.tmp-zzzzzz"};
  for (const fs::path& one : cut_off) {
    fs::create_directories(one.parent_path());
    testing::spill(one, "half");
  }
  testing::spill(run / "tokens/mine.tmp-notes", "kept");
  ASSERT_EQ(supervise("r", "", {"train.train_iters=14"}).status, 0);
  for (const fs::path& one : cut_off) EXPECT_FALSE(fs::exists(one)) << one;
  EXPECT_TRUE(fs::exists(run / "tokens/mine.tmp-notes"));
}

TEST_F(SuperviseSlow, NoProcessOutlivesTheSupervisor) {
  ::setenv("WEFT_FAULT", "hang@step:0:5", 1);
  testing::Process process({.args = words("r", {})});
  ASSERT_TRUE(testing::wait_until([&] { return records_of("r") >= 5; }));
  const std::vector<RankProcessHere> all = below(process.id(), processes_here());
  ASSERT_EQ(all.size(), 1u);
  process.send(SIGKILL);
  process.wait();
  EXPECT_TRUE(testing::wait_until([&] { return ::kill(all[0].id, 0) != 0; }));
  EXPECT_EQ(supervise("r", "", {}).status, 0);
}

// The second one ends at once. The first one goes on to the bits of a run that was alone.
TEST_F(SuperviseSlow, ASecondSupervisorInTheSameFolderIsRefused) {
  const std::string whole = whole_weights();
  fail_by("slow@step:0:5,slow@step:0:6,slow@step:0:7");
  testing::Process first({.args = words("r", {})});
  ASSERT_TRUE(testing::wait_until([&] { return records_of("r") >= 5; }));
  const Finished second = supervise("r", "");
  ASSERT_TRUE(first.running()) << "the second one came too late";
  EXPECT_EQ(second.status, 2) << second.err;
  EXPECT_SAYS(second.err, "run.dir = \"" + (dir_ / "r").string() + "\" is in use by another weft, process ");
  EXPECT_SAYS(second.err, " on host " + name_of_host() + ": wait for it");
  const Finished f = first.wait();
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(causes_of("r"), std::vector<std::string>{"finished"});
  EXPECT_EQ(events_of("r", "started").size(), 1u) << "the one refused wrote into the events of the other";
  EXPECT_EQ(records_of("r"), 12u);
  EXPECT_EQ(weights_of("r"), whole);
}

class SuperviseOddClockSlow : public Supervise {
 protected:
  void SetUp() override {
    if (std::string(testing::kDiskLayer).empty()) GTEST_SKIP() << "sanitizers have layers of their own";
    Supervise::SetUp();
  }
  void TearDown() override {
    for (const char* name : {"LD_PRELOAD", "WEFT_CLOCK_JUMP"}) ::unsetenv(name);
    Supervise::TearDown();
  }
};

// The clock jumps by two hours, again and again. Neither the supervisor nor the run takes that for a hang, the records
// have the seconds that steps and saves took, and no bit changes.
TEST_F(SuperviseOddClockSlow, JumpsAreNoHangAndChangeNoRate) {
  const std::string whole = whole_weights();
  ::setenv("LD_PRELOAD", testing::kDiskLayer, 1);
  ::setenv("WEFT_CLOCK_JUMP", "3600", 1);
  const Finished f = supervise("r", "slow@step:0:3,slow@step:0:5,slow@save:0:8");
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(causes_of("r"), std::vector<std::string>{"finished"});
  EXPECT_TRUE(events_of("r", "hang").empty());
  EXPECT_NEAR(std::abs(double(events_of("r", "ended")[0]["time"]) - wall_time_s()), 3600, 60) << "it did not jump";
  EXPECT_EQ(weights_of("r"), whole);
  const std::vector<nlohmann::json> steps = steps_of("r");
  ASSERT_EQ(steps.size(), 12u);
  for (const nlohmann::json& step : steps) {
    EXPECT_GT(step["step_time_s"].get<double>(), 0) << step;
    EXPECT_LT(step["step_time_s"].get<double>(), 600) << step;
    EXPECT_GT(step["tokens_per_s"].get<double>(), 0) << step;
    EXPECT_GE(step.value("save_s", 0.0), 0) << step;
    EXPECT_LT(step.value("save_s", 0.0), 600) << step;
  }
}

}  // namespace
}  // namespace weft
