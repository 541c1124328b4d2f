// Disks that fail at any call, and power that fails behind any.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "apps/crash_states.h"
#include "apps/small_run.h"
#include "weft/checkpoint/checkpoint_check.h"
#include "weft/comm/process_mesh.h"
#include "weft/train/checkpoint_folders.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::CrashStates;
using testing::DiskCall;
using testing::Finished;
using testing::Unsynced;
using Settings = std::vector<std::string>;

class DiskFaults : public testing::SmallRun {
 protected:
  void SetUp() override {
    if (std::string(testing::kDiskLayer).empty()) GTEST_SKIP() << "sanitizers have layers of their own";
    SmallRun::SetUp();
  }
  void TearDown() override {
    for (const char* name : {"LD_PRELOAD", "WEFT_DISK_BELOW", "WEFT_DISK_FAIL", "WEFT_DISK_RECORD"}) ::unsetenv(name);
    SmallRun::TearDown();
  }
  Finished train(const std::string& name, const Settings& more) {
    Settings all{"train.train_iters=4"};
    all.insert(all.end(), more.begin(), more.end());
    return run("train", all, name);
  }
  Finished train_below_a_layer(const std::string& name, const std::string& fault, const Settings& more) {
    ::setenv("LD_PRELOAD", testing::kDiskLayer, 1);
    ::setenv("WEFT_DISK_BELOW", dir_.path().c_str(), 1);
    ::setenv("WEFT_DISK_FAIL", fault.c_str(), 1);
    ::setenv("WEFT_DISK_RECORD", (dir_ / (name + ".calls")).c_str(), 1);
    Finished f = train(name, more);
    TearDown();
    return f;
  }
  std::vector<DiskCall> calls_of(const std::string& name) { return testing::read_disk_calls(dir_ / (name + ".calls")); }
  // The step of the newest checkpoint, all of which must be whole; 0: there is none.
  static int64_t newest_of(const fs::path& run) {
    int64_t newest = 0;
    for (const fs::path& folder : checkpoint_folders(run)) {
      const CheckOutcome o = check_checkpoint(folder, CheckpointPart::all, *single_mesh().world, 1);
      EXPECT_EQ(o.damage, "") << folder;
      newest = step_of(folder);
    }
    return newest;
  }
};

using DiskFaultsSlow = DiskFaults;

struct SavingWay {
  const char* name;
  Settings settings;
};
const SavingWay kWays[] = {{"waited", {}}, {"beside", {"checkpoint.async_save=true"}}};

// ENOSPC from one call on, and EIO of one call. The run ends at its end, or with a status that says that it did not;
// what is named a checkpoint is whole; and the same command without the fault comes to the same end.
TEST_F(DiskFaultsSlow, WhateverCallFailsNoCheckpointIsHarmed) {
  for (const auto& [way, settings] : kWays) {
    ASSERT_EQ(train_below_a_layer(way, "", settings).status, 0);
    const int64_t num_calls = int64_t(calls_of(way).size());
    ASSERT_GT(num_calls, 60);
    for (int64_t call = 1; call <= num_calls; call += 11)
      for (const std::string& fault : {fmt::format("{} {} on", call, ENOSPC), fmt::format("{} {} once", call, EIO)}) {
        const std::string name = "r";
        const Finished f = train_below_a_layer(name, fault, settings);
        const std::string what = fmt::format("{}, {}: status {}\n{}", way, fault, f.status, f.err);
        EXPECT_TRUE(f.status == 0 || f.status == 1 || f.status == 89) << what;
        if (fs::exists(dir_ / name)) { EXPECT_EQ(f.status == 0, newest_of(dir_ / name) == 4) << what; }
        const Finished again = train(name, settings);
        EXPECT_EQ(again.status, 0) << what << again.err;
        EXPECT_EQ(weights_of(name, 4), weights_of(way, 4)) << what;
        fs::remove_all(dir_ / name);
      }
  }
}

// Behind each call that brings something to the disk, in three ways: what was announced as a checkpoint is there, and
// all that has such a name is whole.
TEST_F(DiskFaultsSlow, AfterALossOfPowerTheNewestAnnouncedCheckpointIsThere) {
  for (const auto& [way, settings] : kWays) {
    ASSERT_EQ(train_below_a_layer(way, "", settings).status, 0);
    CrashStates states(dir_.path());
    const std::string folder = (dir_ / way / "checkpoints").string();
    int64_t named = 0, announced = 0;
    for (const DiskCall& call : calls_of(way)) {
      states.apply(call);
      if (call.what == 'r' && call.other.starts_with(folder + "/step-")) named = std::max(named, step_of(call.other));
      if (call.what == 's' && call.path == folder) announced = named;
      if (call.what == 'w' || call.what == 't') continue;
      for (const Unsynced unsynced : {Unsynced::stays, Unsynced::names_stay, Unsynced::is_lost}) {
        states.leave(dir_ / "left", unsynced);
        EXPECT_GE(newest_of(dir_ / "left" / way), announced) << way << " behind " << call.what << " of " << call.path;
        fs::remove_all(dir_ / "left");
      }
    }
    EXPECT_EQ(announced, 4);
  }
}

}  // namespace
}  // namespace weft
