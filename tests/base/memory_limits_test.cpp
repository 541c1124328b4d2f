// What memory is left is the least that any limit leaves, wherever the limit stands.
#include "weft/base/memory_limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "support.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::spill;
using testing::TempDir;

constexpr int64_t kMiB = 1 << 20;

// A machine with 1000 MiB available of 2000.
class Root {
 public:
  Root() { write("proc/meminfo", "MemTotal:  2048000 kB\nMemFree:  1 kB\nMemAvailable:  1024000 kB\n"); }
  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((dir_ / file).parent_path());
    spill(dir_ / file, text);
  }
  MemoryLimit left() const { return memory_left_here(dir_.path()).value_or(MemoryLimit{}); }
  const fs::path& path() const { return dir_.path(); }

 private:
  TempDir dir_;
};

std::string mib(int64_t number) { return std::to_string(number * kMiB) + "\n"; }

TEST(MemoryLimits, WithoutAControlGroupTheMachinesAvailableMemoryIsLeft) {
  const Root root;
  EXPECT_EQ(root.left().bytes, 1000 * kMiB);
  EXPECT_EQ(root.left().what, "1000 MiB of the 1.95 GiB of this machine are available");
}

TEST(MemoryLimits, OfVersion2TheLeastOfAllGroupsUpToTheRootCountsAndCachesDoNot) {
  const Root root;
  root.write("proc/self/mountinfo", "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n");
  root.write("proc/self/cgroup", "0::/user/job/step\n");
  root.write("sys/fs/cgroup/user/job/step/memory.max", "max\n");
  EXPECT_EQ(root.left().bytes, 1000 * kMiB);
  root.write("sys/fs/cgroup/user/job/memory.max", mib(500));
  root.write("sys/fs/cgroup/user/job/memory.current", mib(300));
  root.write("sys/fs/cgroup/user/job/memory.stat",
             "anon 5\ninactive_file " + mib(100) + "active_file " + mib(50) + "slab 7\n");
  EXPECT_EQ(root.left().bytes, 350 * kMiB);
  EXPECT_EQ(root.left().what, "350 MiB of the 500 MiB that control group /user/job may take are left");
  root.write("sys/fs/cgroup/user/memory.max", mib(800));
  root.write("sys/fs/cgroup/user/memory.current", mib(700));
  EXPECT_EQ(root.left().bytes, 100 * kMiB);
  root.write("sys/fs/cgroup/user/job/step/memory.high", mib(10));
  EXPECT_EQ(root.left().bytes, 10 * kMiB);
  root.write("sys/fs/cgroup/user/job/step/memory.current", mib(20));
  EXPECT_EQ(root.left().bytes, 0);
}

TEST(MemoryLimits, OfVersion1TheMemoryControllerCountsAndNoLimitIsNone) {
  const Root root;
  root.write("proc/self/mountinfo",
             "33 31 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
             "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  root.write("proc/self/cgroup", "4:memory:/a/b\n1:cpu:/c\n0::/\n");
  root.write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(root.left().bytes, 1000 * kMiB);
  root.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", mib(400));
  root.write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", mib(200));
  root.write("sys/fs/cgroup/memory/a/memory.stat", "inactive_file 0\ntotal_inactive_file " + mib(30));
  EXPECT_EQ(root.left().bytes, 230 * kMiB);
  root.write("sys/fs/cgroup/memory/a/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  EXPECT_EQ(kills_for_memory(root.path()), 3);
}

TEST(MemoryLimits, InAContainerTheTopOfTheMountIsItsGroup) {
  const Root root;
  // The group's path is of the host's view, of which only the container's own part is mounted.
  root.write("proc/self/mountinfo", "35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  root.write("proc/self/cgroup", "4:memory:/docker/abc/inner\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", mib(300));
  root.write("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", mib(200));
  EXPECT_EQ(root.left().bytes, 200 * kMiB);
  root.write("proc/self/cgroup", "4:memory:/elsewhere\n");
  EXPECT_EQ(root.left().bytes, 300 * kMiB);
  root.write("proc/self/mountinfo", "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup2 cgroup2 rw\n");
  root.write("proc/self/cgroup", "0::/../../x\n");
  root.write("sys/fs/cgroup/memory/memory.max", mib(250));
  root.write("sys/fs/cgroup/memory/memory.events", "oom 1\noom_kill 2\n");
  EXPECT_EQ(root.left().bytes, 250 * kMiB);
  EXPECT_EQ(kills_for_memory(root.path()), 2);
}

TEST(MemoryLimits, WhatTheKernelDoesNotTellIsNoLimit) {
  const TempDir empty;
  EXPECT_FALSE(memory_left_here(empty.path()));
  EXPECT_FALSE(kills_for_memory(empty.path()));
  const auto here = memory_left_here();
  ASSERT_TRUE(here);
  EXPECT_GT(here->bytes, 0);
}

TEST(MemoryLimits, AProcessHasWhatItsAddressSpaceLeaves) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer maps more memory than this test leaves it";
#endif
  const Root root;
  root.write("proc/self/status", "Name:\tweft\nVmSize:\t  1048576 kB\nVmData:\t  1024 kB\n");
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  const rlimit limit{rlim_t(64) << 30, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  const auto left = memory_left_to_a_process(root.path());
  setrlimit(RLIMIT_AS, &before);
  ASSERT_TRUE(left);
  EXPECT_EQ(left->bytes, int64_t{63} << 30);
  EXPECT_EQ(left->what, "63.00 GiB of the 64.00 GiB that a process may map (ulimit -v) are left");
}

}  // namespace
}  // namespace weft
