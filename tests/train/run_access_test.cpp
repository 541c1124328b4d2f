// Who may read and write a run's folder.
#include "weft/train/run_access.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support.h"
#include "weft/base/error.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class RunAccess : public ::testing::Test {
 protected:
  RunAccess() { recipe_.run.dir = (dir_ / "runs/first").string(); }
  ~RunAccess() override { ::umask(before_); }
  static int mode_of(const fs::path& path) {
    struct stat state = {};
    EXPECT_EQ(::stat(path.c_str(), &state), 0) << path;
    return int(state.st_mode & 0777);
  }
  void make(mode_t mode) {
    fs::create_directories(recipe_.run.dir);
    ASSERT_EQ(::chmod(recipe_.run.dir.c_str(), mode), 0);
  }
  std::string refused() {
    return testing::error_of<ConfigError>([&] { refuse_open_run_folder(recipe_); });
  }

  testing::TempDir dir_;
  Recipe recipe_;
  const mode_t before_ = ::umask(0);
};

TEST_F(RunAccess, AFolderIsMadeForItsOwnerWhateverTheUmask) {
  make_run_folder(recipe_);
  EXPECT_EQ(mode_of(recipe_.run.dir), 0700);
  make_run_folder(recipe_);  // one that is there
  recipe_.run.dir += "-2/";
  make_run_folder(recipe_);
  EXPECT_EQ(mode_of(recipe_.run.dir), 0700);
}

TEST_F(RunAccess, ASharedFolderIsMadeAsTheUmaskSaysAndNeverForAllToWrite) {
  recipe_.run.is_private = false;
  make_run_folder(recipe_);
  EXPECT_EQ(mode_of(recipe_.run.dir), 0775);
  ::umask(0027);
  recipe_.run.dir += "-2";
  make_run_folder(recipe_);
  EXPECT_EQ(mode_of(recipe_.run.dir), 0750);
}

TEST_F(RunAccess, AFolderThatOthersMayWriteToIsRefused) {
  for (const auto& [mode, text] : {std::pair{0770, "mode 770"}, std::pair{0702, "mode 702"}}) {
    make(mode_t(mode));
    EXPECT_SAYS(refused(), "run.dir = \"" + recipe_.run.dir + "\": " + recipe_.run.dir + " may be written by others");
    EXPECT_SAYS(refused(), text);
    EXPECT_SAYS(refused(), "chmod go-w " + recipe_.run.dir);
    EXPECT_SAYS(refused(), "run.private=false");
    EXPECT_THROW(make_run_folder(recipe_), ConfigError);
  }
  recipe_.run.is_private = false;
  EXPECT_NO_THROW(make_run_folder(recipe_));
}

TEST_F(RunAccess, WhatIsInItIsLookedAtWhereOthersReachIt) {
  make(0711);
  fs::create_directory(fs::path(recipe_.run.dir) / "checkpoints");
  EXPECT_SAYS(refused(), "runs/first/checkpoints may be written by others than its owner (mode 777)");
  make(0700);
  EXPECT_NO_THROW(refuse_open_run_folder(recipe_)) << "nobody else comes there";
}

TEST_F(RunAccess, ReadersAreToldWhereTheFolderWasThere) {
  EXPECT_EQ(warn_of_readers(recipe_), "") << "there is none";
  make(0750);
  EXPECT_NO_THROW(refuse_open_run_folder(recipe_));
  EXPECT_SAYS(warn_of_readers(recipe_), "others may read it (mode 750): chmod 700 " + recipe_.run.dir);
  make(0700);
  EXPECT_EQ(warn_of_readers(recipe_), "");
  make(0750);
  recipe_.run.is_private = false;
  EXPECT_EQ(warn_of_readers(recipe_), "");
}

TEST_F(RunAccess, AFolderOfSomebodyElseIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a folder of another user's";
  make(0700);
  constexpr uid_t kSomebody = 54321;
  ASSERT_EQ(::chown(recipe_.run.dir.c_str(), kSomebody, gid_t(-1)), 0);
  EXPECT_NO_THROW(refuse_open_run_folder(recipe_)) << "root makes folders for users";
  ASSERT_EQ(::chown(dir_.path().c_str(), kSomebody + 1, gid_t(-1)), 0);
  ASSERT_EQ(::chmod((dir_ / "runs").c_str(), 0755), 0);
  ASSERT_EQ(::seteuid(kSomebody + 1), 0);
  const std::string text = refused();
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_SAYS(text, "belongs to somebody else (user 54321)");
}

}  // namespace
}  // namespace weft
