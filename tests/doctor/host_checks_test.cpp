// Hosts as their kernels show them, in a folder that stands for the root.
#include "weft/doctor/host_checks.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>

#include "support.h"
#include "weft/doctor/disk_checks.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::spill;
using testing::TempDir;

class Host : public ::testing::Test {
 protected:
  void file(const std::string& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    spill(root_ / name, text + "\n");
  }
  void core(int number, const std::string& name, const std::string& text) {
    file("sys/devices/system/cpu/cpu" + std::to_string(number) + "/" + name, text);
  }
  const fs::path& root() const { return root_.path(); }
  TempDir root_;
};

TEST_F(Host, ThatTellsNothingIsUnknownAndNotBad) {
  for (const HealthFinding& f : check_host({}, root())) {
    EXPECT_NE(f.verdict, HealthVerdict::bad) << f.what;
    if (!f.what.ends_with(")")) { EXPECT_EQ(f.verdict, HealthVerdict::unknown) << f.what << ": " << f.found; }
  }
}

TEST_F(Host, WhatIsNotGoodSaysWhatToChangeAndWhatItCosts) {
  file("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
  file("proc/meminfo", "MemTotal: 8 kB\nSwapTotal:  2000000 kB\nSwapFree:  1000000 kB");
  file("proc/loadavg", "7.50 3 1 1/2 3");
  core(0, "cpufreq/scaling_governor", "powersave");
  const HealthFindings all = check_host({}, root());
  int bad = 0;
  for (const HealthFinding& f : all) {
    const bool is_fine = f.verdict == HealthVerdict::good || f.verdict == HealthVerdict::unknown;
    EXPECT_EQ(f.change.empty(), is_fine) << f.what;
    EXPECT_EQ(f.cost.empty(), is_fine) << f.what;
    bad += f.verdict == HealthVerdict::warning;
  }
  EXPECT_GE(bad, 3);
}

TEST_F(Host, GovernorsAreJudgedByTheirDriver) {
  core(0, "cpufreq/scaling_governor", "performance");
  core(1, "cpufreq/scaling_governor", "powersave");
  HealthFinding f = check_governor(root());
  EXPECT_EQ(f.verdict, HealthVerdict::warning);
  EXPECT_EQ(f.found, "performance on 1 core, powersave on 1 core");
  core(0, "cpufreq/scaling_driver", "intel_pstate");  // whose powersave follows the load
  EXPECT_EQ(check_governor(root()).verdict, HealthVerdict::good);
}

TEST_F(Host, TheClockCapIsThatOfTheSlowestCore) {
  for (int c = 0; c < 2; ++c) core(c, "cpufreq/cpuinfo_max_freq", "4000000");
  core(0, "cpufreq/scaling_max_freq", "3990000");
  core(1, "cpufreq/scaling_max_freq", "4000000");
  EXPECT_EQ(check_clock_cap(root()).verdict, HealthVerdict::good);
  core(1, "cpufreq/scaling_max_freq", "2000000");
  const HealthFinding f = check_clock_cap(root());
  EXPECT_EQ(f.verdict, HealthVerdict::warning);
  EXPECT_EQ(f.found, "2000 of 4000 MHz");
  EXPECT_SAYS(f.cost, "2.00 times as long");
  core(1, "cpufreq/cpuinfo_max_freq", "nonsense");
  EXPECT_EQ(check_clock_cap(root()).verdict, HealthVerdict::good);
}

TEST_F(Host, PagesNodesSwapAndLoad) {
  file("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
  EXPECT_EQ(check_huge_pages(root()).verdict, HealthVerdict::good) << "weft asks for them";
  fs::create_directories(root_ / "sys/devices/system/node/node0");
  EXPECT_EQ(check_numa(root()).verdict, HealthVerdict::good);
  fs::create_directories(root_ / "sys/devices/system/node/node1");
  EXPECT_EQ(check_numa(root()).found, "2 nodes");
  file("proc/meminfo", "SwapTotal: 1000 kB\nSwapFree: 900 kB");
  EXPECT_EQ(check_swap(root()).verdict, HealthVerdict::good);
  file("proc/loadavg", "1.00 3 1 1/2 3");
  EXPECT_EQ(check_other_work(root(), 2).verdict, HealthVerdict::warning);
  EXPECT_EQ(check_other_work(root(), 64).verdict, HealthVerdict::good);
  file("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet");
  EXPECT_EQ(check_clock_source(root()).verdict, HealthVerdict::advice);
  core(0, "thermal_throttle/core_throttle_count", "3");
  core(1, "thermal_throttle/core_throttle_count", "4");
  EXPECT_SAYS(check_throttling(root()).found, "7 times");
}

TEST_F(Host, SharedMemoryMattersToProcessesAlone) {
  EXPECT_EQ(check_shared_memory({}, root()).verdict, HealthVerdict::unknown);
  EXPECT_EQ(check_shared_memory({.ranks_are_processes = true}, root()).verdict, HealthVerdict::warning);
}

TEST(Limits, AFileThatTheLimitForbidsIsBad) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit now = before;
  now.rlim_cur = 1000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &now), 0);
  const HealthFinding larger = check_file_size({.largest_file_bytes = 1001}),
                      as_large = check_file_size({.largest_file_bytes = 1000}), any = check_file_size({});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(larger.verdict, HealthVerdict::bad);
  EXPECT_EQ(as_large.verdict, HealthVerdict::good);
  EXPECT_EQ(any.verdict, HealthVerdict::advice);
}

// --- disks ---

const HealthFinding& of(const HealthFindings& all, const std::string& what) {
  for (const HealthFinding& f : all)
    if (f.what == what) return f;
  ADD_FAILURE() << "no finding of " << what;
  return all.front();
}

TEST(Disk, IsTriedAndLeftAsItWas) {
  const TempDir dir;
  const HealthFindings all = check_disk(dir / "runs/that/is/not/there", {.probe_bytes = 1 << 20});
  for (const char* what : {"writing", "atomic names", "locks"})
    EXPECT_LT(of(all, what).verdict, HealthVerdict::warning) << what << ": " << of(all, what).found;
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

// With a recipe, what fits is judged once, by the rule that saves go by (judge_checkpoint_room).
TEST(Disk, RoomIsToldWhereNobodyElseJudgesIt) {
  const TempDir dir;
  const auto has_room = [&](int64_t bytes) {
    const HealthFindings all = check_disk(dir.path(), {.checkpoint_bytes = bytes, .probe_bytes = 1 << 20});
    return std::any_of(all.begin(), all.end(), [](const HealthFinding& f) { return f.what == "room"; });
  };
  EXPECT_TRUE(has_room(0));
  EXPECT_FALSE(has_room(1));
}

TEST(Disk, WithoutAnExchangeOfNamesSavesTakeTwoSteps) {
  EXPECT_EQ(judge_exchange(0).verdict, HealthVerdict::good);
  EXPECT_EQ(judge_exchange(EINVAL).verdict, HealthVerdict::advice);
  EXPECT_EQ(judge_exchange(EROFS).verdict, HealthVerdict::bad);
}

TEST(Disk, ThatCannotBeWrittenIsBad) {
  const HealthFinding f = of(check_disk("/proc", {}), "writing");  // also for root
  EXPECT_EQ(f.verdict, HealthVerdict::bad);
  EXPECT_SAYS(f.found, "/proc: cannot be written");
}

}  // namespace
}  // namespace weft
