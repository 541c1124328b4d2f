#include "weft/base/durable_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "small_disk.h"
#include "support.h"
#include "weft/base/error.h"

namespace weft {
namespace {

using testing::error_of;
using testing::SmallDisk;
using testing::TempDir;

int64_t entries_in(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

// Whether `holds` is true in a child process.
bool in_child(const std::function<bool()>& holds) {
  const pid_t pid = fork();
  if (pid == 0) _exit(holds() ? 0 : 1);
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(DurableFile, AppearsWholeWhenCommitted) {
  TempDir dir;
  {
    DurableFile file(dir / "a");
    file.write("hello ");
    file.write("world");
    EXPECT_FALSE(std::filesystem::exists(dir / "a"));
    file.commit();
  }
  EXPECT_EQ(testing::slurp(dir / "a"), "hello world");
  EXPECT_EQ(entries_in(dir.path()), 1);
}

TEST(DurableFile, IsForThoseWhomTheUmaskLetsIn) {
  TempDir dir;
  EXPECT_TRUE(in_child([&] {  // the umask is the whole process's
    for (const mode_t mask : {0022, 0077, 0027})
      for (const TemporaryName name : {TemporaryName::one, kOwnName}) {
        ::umask(mask);
        write_file_durably(dir / "file", "text", name);
        struct stat state = {};
        if (::stat((dir / "file").c_str(), &state) != 0 || (state.st_mode & 0777) != (0666 & ~mask)) return false;
      }
    return entries_in(dir.path()) == 1;
  }));
}

TEST(DurableFile, LeavesNothingWhenAbandoned) {
  TempDir dir;
  testing::spill(dir / "a", "old");
  {
    DurableFile file(dir / "a");
    file.write("new");
  }
  EXPECT_EQ(testing::slurp(dir / "a"), "old");
  EXPECT_EQ(entries_in(dir.path()), 1);
}

TEST(DurableFile, WritesOverWhatACrashLeft) {
  TempDir dir;
  testing::spill(dir / "a.tmp", "a long torn write");
  write_file_durably(dir / "a", "new");
  EXPECT_EQ(testing::slurp(dir / "a"), "new");
  EXPECT_EQ(entries_in(dir.path()), 1);
}

TEST(DurableFile, KnowsWhatAKilledProgramLeftByItsName) {
  EXPECT_TRUE(is_cut_off("a.bin.tmp-x3fz0q"));
  EXPECT_TRUE(is_cut_off("a.bin.tmp-x3fz0q", "a.bin"));
  EXPECT_FALSE(is_cut_off("a.bin.tmp-x3fz0q", "b.bin"));
  for (const char* other : {"a.bin", "a.tmp-long-ago", "tmp-x3fz0q", "a.tmp", ".tmp", ""})
    EXPECT_FALSE(is_cut_off(other)) << other;
}

TEST(DurableFile, NamesThePathTheReasonAndWhatToDo) {
  TempDir dir;
  const std::string message = error_of<FileError>([&] { write_file_durably(dir / "none" / "a", "x"); });
  EXPECT_EQ(message,
            (dir / "none" / "a").string() + ": cannot be written: No such file or directory; create the folder first");
  std::filesystem::create_directories(dir / "b" / "c");
  EXPECT_NE(error_of<FileError>([&] { write_file_durably(dir / "b", "x"); }).find("move what has this name away"),
            std::string::npos);
  EXPECT_EQ(entries_in(dir.path()), 1);
}

TEST(DurableFile, FailsWholeAtTheLimitOnFileSizes) {
  TempDir dir;
  testing::spill(dir / "a", "old");
  const bool as_promised = in_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string message = error_of<FileError>([&] { write_file_durably(dir / "a", std::string(5000, 'x')); });
    return message.find("/a: cannot be written: File too large; raise the limit") != std::string::npos;
  });
  EXPECT_TRUE(as_promised);
  EXPECT_EQ(testing::slurp(dir / "a"), "old");
  EXPECT_EQ(entries_in(dir.path()), 1);
}

size_t pages_in_memory(const std::filesystem::path& file, size_t bytes) {
  const int fd = open(file.c_str(), O_RDONLY);
  void* at = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  mincore(at, bytes, pages.data());
  munmap(at, bytes);
  close(fd);
  return size_t(std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1) != 0; }));
}

TEST(DurableFile, WhatWasSyncedIsReadFromTheDiskOnceItIsDroppedFromMemory) {
  TempDir dir;
  struct statfs info {};
  ASSERT_EQ(statfs(dir.path().c_str(), &info), 0);
  constexpr size_t kBytes = 1 << 20;
  std::filesystem::create_directory(dir / "weft");
  write_file_durably(dir / "weft/a", std::string(kBytes, 'x'));
  if (info.f_type == TMPFS_MAGIC || pages_in_memory(dir / "weft/a", kBytes) == 0)
    GTEST_SKIP() << "needs a file system of a disk, whose pages the kernel keeps";
  drop_from_memory(dir.path());
  EXPECT_EQ(pages_in_memory(dir / "weft/a", kBytes), 0u);
  EXPECT_EQ(testing::slurp(dir / "weft/a"), std::string(kBytes, 'x'));
}

TEST(DurableFile, FailsWholeOnAFullDisk) {
  TempDir dir;
  const SmallDisk disk(dir / "disk", 64 << 10);
  if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount a small file system";
  testing::spill(dir / "disk/a", "old");
  const std::string message =
      error_of<FileError>([&] { write_file_durably(dir / "disk/a", std::string(200'000, 'x')); });
  EXPECT_NE(message.find("No space left on device; free some space"), std::string::npos) << message;
  EXPECT_EQ(testing::slurp(dir / "disk/a"), "old");
  EXPECT_EQ(entries_in(dir / "disk"), 1);
  write_file_durably(dir / "disk/a", "new");
  EXPECT_EQ(testing::slurp(dir / "disk/a"), "new");
}

TEST(DurableFolder, AppearsWholeWhenCommitted) {
  TempDir dir;
  {
    DurableFolder folder(dir / "step-1");
    EXPECT_EQ(folder.building(), dir / "step-1.tmp");
    testing::spill(folder.building() / "a", "1");
    std::filesystem::create_directory(folder.building() / "sub");
    testing::spill(folder.building() / "sub/b", "2");
    EXPECT_FALSE(std::filesystem::exists(dir / "step-1"));
    folder.commit();
  }
  EXPECT_EQ(testing::slurp(dir / "step-1/sub/b"), "2");
  EXPECT_EQ(entries_in(dir.path()), 1);
}

TEST(DurableFolder, LeavesNothingWhenAbandoned) {
  TempDir dir;
  {
    DurableFolder folder(dir / "step-1");
    testing::spill(folder.building() / "a", "1");
  }
  EXPECT_EQ(entries_in(dir.path()), 0);
}

TEST(DurableFolder, TakesThePlaceOfAnOlderOne) {
  TempDir dir;
  for (const char* content : {"1", "2"}) {
    DurableFolder folder(dir / "step-1");
    testing::spill(folder.building() / "a", content);
    if (*content == '1') testing::spill(folder.building() / "only-in-the-first", "");
    folder.commit();
  }
  EXPECT_EQ(testing::slurp(dir / "step-1/a"), "2");
  EXPECT_EQ(entries_in(dir / "step-1"), 1);
  EXPECT_EQ(entries_in(dir.path()), 1);
}

TEST(DurableFolder, ClearsWhatACrashLeft) {
  TempDir dir;
  std::filesystem::create_directory(dir / "step-1.tmp");
  testing::spill(dir / "step-1.tmp/torn", "x");
  DurableFolder folder(dir / "step-1");
  testing::spill(folder.building() / "a", "1");
  folder.commit();
  EXPECT_EQ(entries_in(dir / "step-1"), 1);
}

TEST(DurableFolder, BringsBackTheOlderOneThatACrashLeftAside) {
  TempDir dir;
  std::filesystem::create_directory(dir / "step-1.old");
  testing::spill(dir / "step-1.old/a", "1");
  { DurableFolder folder(dir / "step-1"); }
  EXPECT_EQ(testing::slurp(dir / "step-1/a"), "1");
  EXPECT_EQ(entries_in(dir.path()), 1);
}

TEST(DurableFolder, SaysWhereItCannotBeMade) {
  TempDir dir;
  const std::string message = error_of<FileError>([&] { DurableFolder folder(dir / "none/step-1"); });
  EXPECT_NE(message.find("none/step-1.tmp: cannot be created: No such file or directory"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace weft
