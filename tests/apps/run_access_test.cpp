// Whole runs whose folders are for their owner alone, or shared.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "apps/small_run.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;

// Where the user's umask keeps nothing from anybody.
class RunAccessOfRuns : public testing::SmallRun {
 protected:
  ~RunAccessOfRuns() override { ::umask(before_); }
  Finished start(const std::string& command, const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{command, (dir_ / "r.toml").string(), "run.dir=" + (dir_ / name).string(),
                                   "train.train_iters=4"};
    words.insert(words.end(), more.begin(), more.end());
    return testing::weft(words);
  }
  // All that is in and below a folder, and itself, and has one of these bits.
  std::vector<std::string> with_bits(const fs::path& folder, mode_t bits, size_t least = 8) {
    std::vector<std::string> found;
    const auto look = [&](const fs::path& path) {
      struct stat state = {};
      EXPECT_EQ(::lstat(path.c_str(), &state), 0) << path;
      if ((state.st_mode & bits) != 0) found.push_back(fmt::format("{} {:o}", path.string(), state.st_mode & 0777));
    };
    look(folder);
    size_t looked = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) look(entry.path()), ++looked;
    EXPECT_GE(looked, least) << folder;
    return found;
  }
  const mode_t before_ = ::umask(0);
};

TEST_F(RunAccessOfRuns, NothingOfARunIsForOthers) {
  for (const char* command : {"train", "supervise"}) {
    const Finished f = start(command, command, {"train.log_grad_norms=true"});
    ASSERT_EQ(f.status, 0) << f.err;
    EXPECT_EQ(with_bits(dir_ / command, S_IRWXG | S_IRWXO), std::vector<std::string>());
  }
}

TEST_F(RunAccessOfRuns, NothingOfItsLocalCopiesIsForOthers) {
  fail_by("kill@local_written:0:1");  // one that ends well removes them
  const Finished f =
      start("train", "r", {"checkpoint.local_dir=" + (dir_ / "local").string(), "checkpoint.local_interval=1"});
  EXPECT_NE(f.status, 0);
  EXPECT_EQ(with_bits(dir_ / "local", S_IRWXG | S_IRWXO, 2), std::vector<std::string>());
}

TEST_F(RunAccessOfRuns, ASharedRunIsNeverForAllToWrite) {
  const Finished f = start("train", "r", {"run.private=false"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(with_bits(dir_ / "r", S_IWOTH), std::vector<std::string>());
  EXPECT_FALSE(with_bits(dir_ / "r", S_IWGRP).empty()) << "a group shares it, as this umask says";
  EXPECT_EQ(start("train", "r", {"run.private=false", "train.train_iters=6"}).status, 0) << "it goes on";
}

TEST_F(RunAccessOfRuns, AFolderThatOthersMayWriteToIsRefusedBeforeAnythingIsWritten) {
  fs::create_directory(dir_ / "r");
  for (const char* command : {"train", "supervise"}) {
    const Finished f = start(command, "r");
    EXPECT_EQ(f.status, 2) << f.err;
    EXPECT_SAYS(f.err, "may be written by others than its owner (mode 777); chmod go-w ");
    EXPECT_TRUE(fs::is_empty(dir_ / "r"));
  }
}

TEST_F(RunAccessOfRuns, ReadersOfAFolderThatWasThereAreTold) {
  fs::create_directory(dir_ / "r");
  ASSERT_EQ(::chmod((dir_ / "r").c_str(), 0755), 0);
  const Finished f = start("train", "r");
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "warning: run.dir = ");
  EXPECT_SAYS(f.err, "others may read it (mode 755): chmod 700 ");
  ASSERT_EQ(start("train", "new").status, 0);
}

}  // namespace
}  // namespace weft
