// Which state a run goes on from that has local copies beside its checkpoints.
#include "weft/train/local_resume.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include "local_shares.h"
#include "weft/base/error.h"
#include "weft/comm/local_group.h"
#include "weft/comm/process_mesh.h"
#include "weft/train/local_copies.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::flip_a_bit_of;
using testing::SmallCopy;
using testing::spill;
using testing::TempDir;

// A run's folder and a host's, of a run of two ranks.
class CopiedRun : public ::testing::Test {
 protected:
  CopiedRun() {
    recipe_ = parse_recipe("[model]\npath = \"m\"\n[data]\ntrain = [\"a.bin\"]\n", "r.toml",
                           {"run.dir=" + (dir_ / "run").string(), "checkpoint.local_dir=" + (dir_ / "local").string(),
                            "checkpoint.local_interval=1"});
    fs::create_directories(dir_ / "run/checkpoints");
    create_life(life());
    spill(dir_ / "run/checkpoints/local.json", "{\"format\": 1, \"life\": \"" + life_ + "\"}");
  }
  fs::path life() const {
    return local_folder_of(recipe_.checkpoint.local_dir, local_name_of_run(recipe_.run.dir), life_);
  }
  SmallCopy copy(int64_t step) const { return {step, to_toml(recipe_)}; }
  fs::path saved(int64_t step) const { return dir_ / "run/checkpoints" / fmt::format("step-{}", step); }
  fs::path share(int64_t step, int rank) const { return life() / fmt::format("step-{}.rank-{}-of-2", step, rank); }
  FoundCheckpoint resume() const { return find_state_to_resume(recipe_, *single_mesh().world, 1); }
  // What was passed over, and the step that was taken.
  void expect_passes_over(int64_t step, const std::string& why, int64_t taken) const {
    const FoundCheckpoint found = resume();
    EXPECT_EQ(found.path, saved(taken));
    ASSERT_FALSE(found.notes.empty());
    EXPECT_SAYS(found.notes[0], fmt::format("the local copy of step {} is passed over: ", step));
    EXPECT_SAYS(found.notes[0], why);
    EXPECT_FALSE(fs::exists(saved(step)));
    EXPECT_FALSE(fs::exists(saved(step).string() + ".tmp"));
  }

  TempDir dir_;
  Recipe recipe_;
  const std::string life_ = "0123456789abcdef";
};

TEST_F(CopiedRun, GoesOnFromTheNewerOfCheckpointAndCopy) {
  copy(4).write_shares(life());
  copy(6).write_checkpoint(saved(6));
  EXPECT_EQ(resume().path, saved(6));
  EXPECT_FALSE(fs::exists(saved(4)));
  copy(8).write_shares(life());
  copy(7).write_shares(life());
  const FoundCheckpoint found = resume();
  EXPECT_EQ(found.path, saved(8));
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_SAYS(found.notes[0], "step-8 was made of the local copy of step 8, which 2 ranks have written");
  EXPECT_SAYS(testing::slurp(dir_ / "run/events.jsonl"), "\"event\":\"local_taken\"");
  copy(8).write_checkpoint(dir_ / "as-saved");
  EXPECT_EQ(testing::bytes_of_folder(saved(8)), testing::bytes_of_folder(dir_ / "as-saved"));
  EXPECT_FALSE(fs::exists(saved(7)));
}

TEST_F(CopiedRun, WithoutACheckpointGoesOnFromACopy) {
  EXPECT_FALSE(resume().path);
  copy(3).write_shares(life());
  EXPECT_EQ(resume().path, saved(3));
}

TEST_F(CopiedRun, PassesOverWhatIsNotWhole) {
  copy(6).write_checkpoint(saved(6));
  copy(8).write_shares(life());
  fs::remove_all(share(8, 1));
  expect_passes_over(8, "2 ranks wrote it, and the shares of 1 of them are on no host of this run: rank 1", 6);
  copy(8).write_shares(life());
  flip_a_bit_of(share(8, 1) / "data");
  expect_passes_over(8, "rank-1-of-2/data: is not what was saved", 6);
  copy(8).write_shares(life());
  flip_a_bit_of(share(8, 0) / "files/config.json");
  expect_passes_over(8, "config.json", 6);
  copy(8).write_shares(life());
  fs::remove(share(8, 0) / "files/model.safetensors");
  expect_passes_over(8, "files/model.safetensors: is missing", 6);
  fs::remove_all(share(8, 0));  // of a copy that was cut off
  fs::create_directories(share(8, 0).string() + ".tmp");
  expect_passes_over(8, "rank 0", 6);
}

// What others may have put there is believed by nobody, however whole it is.
TEST_F(CopiedRun, PassesOverWhatIsNotItsUsersOwn) {
  copy(6).write_checkpoint(saved(6));
  copy(8).write_shares(life());
  const fs::path local = dir_ / "local";
  const auto expect_passed_over = [&](const std::string& why) {
    const FoundCheckpoint found = resume();
    EXPECT_EQ(found.path, saved(6)) << why;
    ASSERT_FALSE(found.notes.empty()) << why;
    EXPECT_SAYS(found.notes[0], "WARNING: local copies are passed over: on the host of rank 0, " + why);
    EXPECT_TRUE(local_copies_here(recipe_.run.dir, local.string()).empty()) << why;
    LocalCopies copies(recipe_, *single_mesh().world, 5);
    copies.begin_again(*single_mesh().world);
    spill(dir_ / "run/checkpoints/local.json", "{\"format\": 1, \"life\": \"" + life_ + "\"}");
  };
  for (const fs::path& folder : {local, life()}) {
    fs::permissions(folder, fs::perms::owner_all | fs::perms::group_write | fs::perms::group_exec);
    expect_passed_over(folder.string() + ": others than its owner may write to it");
    fs::permissions(folder, fs::perms::owner_all);
    const fs::path aside = dir_ / "elsewhere";
    fs::rename(folder, aside);
    fs::create_directory_symlink(aside, folder);
    expect_passed_over(folder.string() + ": is a link");
    fs::remove(folder);
    fs::rename(aside, folder);
    if (::geteuid() != 0) continue;  // may give nothing away
    ASSERT_EQ(::chown(folder.c_str(), 12345, gid_t(-1)), 0);
    expect_passed_over(folder.string() + ": belongs to somebody else (user 12345)");
    ASSERT_EQ(::chown(folder.c_str(), 0, gid_t(-1)), 0);
  }
  EXPECT_EQ(resume().path, saved(8));
}

// The share of another step has a hash of its own, and says what step it is of only in its manifest.
TEST_F(CopiedRun, NeverMixesTwoSteps) {
  copy(6).write_checkpoint(saved(6));
  copy(7).write_shares(life());
  copy(8).write_shares(life());
  fs::remove_all(share(8, 1));
  fs::rename(share(7, 1), share(8, 1));
  expect_passes_over(8, "was saved as step-7.rank-1-of-2", 6);
  // Renamed within, too: then the sums of its tensors are none of this checkpoint's.
  LocalShare as_8 = parse_local_share(testing::slurp(share(8, 1) / "manifest.json"), "manifest.json");
  as_8.name.step = 8;
  spill(share(8, 1) / "manifest.json", to_text(as_8));
  expect_passes_over(8, "tensor \"w\" is not what was saved", 6);
}

// A damaged copy is no reason to forget an older one that is newer than the checkpoint.
TEST_F(CopiedRun, TakesAnOlderCopyWhereTheNewestIsDamaged) {
  copy(6).write_checkpoint(saved(6));
  copy(7).write_shares(life());
  copy(8).write_shares(life());
  flip_a_bit_of(share(8, 0) / "data");
  expect_passes_over(8, "rank-0-of-2/data", 7);
}

TEST_F(CopiedRun, ACopyStandsInForADamagedCheckpoint) {
  copy(4).write_checkpoint(saved(4));
  copy(9).write_checkpoint(saved(9));
  copy(8).write_shares(life());
  flip_a_bit_of(saved(9) / "model.safetensors");
  EXPECT_EQ(resume().path, saved(8));
  EXPECT_TRUE(fs::exists(saved(9).string() + ".damaged"));
  // Also where no checkpoint is whole.
  fs::remove_all(saved(8));
  fs::rename(saved(9).string() + ".damaged", saved(9));
  flip_a_bit_of(saved(4) / "model.safetensors");
  EXPECT_EQ(resume().path, saved(8));
  fs::remove_all(saved(8));
  fs::remove_all(life());
  EXPECT_SAYS(error_of<NoCheckpointError>([&] { resume(); }), "none of its checkpoints is whole");
}

// A run that was begun again, or went back, is in another life: what it wrote before is not its state.
TEST_F(CopiedRun, TakesNoCopyOfAnotherLife) {
  copy(6).write_checkpoint(saved(6));
  copy(8).write_shares(life());
  copy(9).write_shares(dir_ / "local" / fmt::format("{}-fedcba9876543210", local_name_of_run(recipe_.run.dir)));
  spill(dir_ / "run/checkpoints/local.json", "{\"format\": 1, \"life\": \"00000000000000aa\"}");
  EXPECT_EQ(resume().path, saved(6));
  spill(dir_ / "run/checkpoints/local.json", "{\"format\": 1, \"life\": \"../../x\"}");
  EXPECT_EQ(resume().path, saved(6));
  fs::remove(dir_ / "run/checkpoints/local.json");
  EXPECT_EQ(resume().path, saved(6));
}

TEST_F(CopiedRun, RefusesACopyOfAnotherRecipe) {
  copy(8).write_shares(life());
  recipe_.optimizer.lr *= 2;
  const std::string why = error_of<ConfigError>([&] { resume(); });
  EXPECT_SAYS(why, "the local copy of step 8 is of another recipe");
  EXPECT_SAYS(why, "optimizer.lr");
  EXPECT_FALSE(fs::exists(saved(8)));
}

// As the neighbour of a host that is lost has it: the same files under another name.
TEST_F(CopiedRun, TakesANeighboursShareWhereTheRanksOwnIsLostOrDamaged) {
  copy(6).write_checkpoint(saved(6));
  copy(8).write_checkpoint(dir_ / "as-saved");
  const auto neighbours = [&](int64_t step, int rank) { return fs::path(share(step, rank).string() + ".neighbour"); };
  const auto expect_taken = [&](const std::string& note) {
    const FoundCheckpoint found = resume();
    EXPECT_EQ(found.path, saved(8));
    ASSERT_FALSE(found.notes.empty());
    EXPECT_SAYS(found.notes[0], note);
    EXPECT_TRUE(testing::bytes_of_folder(saved(8)) == testing::bytes_of_folder(dir_ / "as-saved"));
    fs::remove_all(saved(8));
  };
  for (const int rank : {0, 1}) {
    copy(8).write_shares(life());
    fs::rename(share(8, rank), neighbours(8, rank));
    expect_taken("which 2 ranks have written; the shares of 1 of them are a neighbour's");
    copy(8).write_shares(life());
    flip_a_bit_of(share(8, rank) / "data");
    expect_taken(fmt::format("what another host holds is read instead: {}/data: is not what was saved",
                             share(8, rank).string()));
    EXPECT_SAYS(testing::slurp(dir_ / "run/events.jsonl"), "\"event\":\"local_neighbour\"");
  }
  copy(8).write_shares(life());
  flip_a_bit_of(share(8, 0) / "files/config.json");
  flip_a_bit_of(share(8, 1) / "manifest.json");
  expect_taken("rank-1-of-2/manifest.json: is not what was saved");
  flip_a_bit_of(neighbours(8, 1) / "data");
  const FoundCheckpoint found = resume();
  EXPECT_EQ(found.path, saved(6));
  EXPECT_SAYS(found.notes.back(), "the local copy of step 8 is passed over: ");
  EXPECT_SAYS(found.notes.back(), "rank-1-of-2.neighbour/data: is not what was saved");
}

// What a neighbour holds is of no other step than its manifest says.
TEST_F(CopiedRun, NeverMixesANeighboursShareOfAnotherStep) {
  copy(6).write_checkpoint(saved(6));
  copy(7).write_shares(life());
  copy(8).write_shares(life());
  fs::remove_all(share(8, 1));
  fs::rename(share(7, 1), share(8, 1).string() + ".neighbour");
  expect_passes_over(8, "was saved as step-7.rank-1-of-2", 6);
}

// Neither the host nor its neighbour is left: that is told once, and not where there is a newer state.
TEST_F(CopiedRun, ACopyThatNoHostHasIsToldAsLost) {
  copy(6).write_checkpoint(saved(6));
  const auto saved_event = [](int step) { return fmt::format("{{\"event\":\"local_saved\",\"step\":{}}}\n", step); };
  spill(dir_ / "run/events.jsonl", saved_event(8) + "half a line, \"local_saved\n");
  const FoundCheckpoint found = resume();
  EXPECT_EQ(found.path, saved(6));
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_SAYS(found.notes[0], "WARNING: the local copy of step 8 is lost: no host of this run has any of it");
  EXPECT_SAYS(testing::slurp(dir_ / "run/events.jsonl"), "\"event\":\"local_passed_over\"");
  EXPECT_TRUE(resume().notes.empty()) << "the run goes on without it, and has said so";
  spill(dir_ / "run/events.jsonl", saved_event(8) + "{\"event\":\"spike\",\"action\":\"rolled_back\"}\n");
  EXPECT_TRUE(resume().notes.empty()) << "the run has gone back, and left it behind";
  spill(dir_ / "run/events.jsonl", saved_event(8) + saved_event(6));
  EXPECT_TRUE(resume().notes.empty());
  spill(dir_ / "run/events.jsonl", saved_event(8));
  fs::remove(dir_ / "run/checkpoints/local.json");
  EXPECT_TRUE(resume().notes.empty()) << "no copies count";
}

// Three ranks put together what two have written, and agree on what they take.
TEST_F(CopiedRun, IsPutTogetherByAnyNumberOfRanks) {
  copy(6).write_checkpoint(saved(6));
  copy(7).write_shares(life());
  copy(8).write_shares(life());
  flip_a_bit_of(share(8, 1) / "data");
  run_local(3, [&](Communicator& ranks) {
    const FoundCheckpoint found = find_state_to_resume(recipe_, ranks, 1);
    EXPECT_EQ(found.path, saved(7)) << ranks.rank();
  });
  copy(7).write_checkpoint(dir_ / "as-saved");
  EXPECT_EQ(testing::bytes_of_folder(saved(7)), testing::bytes_of_folder(dir_ / "as-saved"));
}

// Older steps are no stand-in for a newer state that is whole: the run ends, and goes on from it when there is room.
TEST_F(CopiedRun, ACopyThatThereIsNoRoomForEndsTheRunAndStays) {
  copy(6).write_checkpoint(saved(6));
  copy(8).write_shares(life());
  fs::create_directories(saved(9).string() + ".tmp");  // of a save that was cut off
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handled = std::signal(SIGXFSZ, SIG_IGN);
  rlimit now = before;
  now.rlim_cur = 40;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &now), 0);
  const std::string why = error_of<FileError>([&] { resume(); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handled);
  EXPECT_SAYS(why, "so the local copy of step 8, the newest state of the run, cannot be made a checkpoint. It stays.");
  EXPECT_SAYS(why, "remove " + life().string() + " on each host");
  EXPECT_FALSE(fs::exists(saved(8).string() + ".tmp"));
  EXPECT_FALSE(fs::exists(saved(9).string() + ".tmp"));
  EXPECT_EQ(resume().path, saved(8));
}

// Copies of the life before count, as where a host was away, until the run has a newer state than what it went on from.
TEST_F(CopiedRun, ALifeEndsTheOneBeforeWithItsFirstState) {
  copy(6).write_checkpoint(saved(6));
  copy(8).write_shares(life());
  fs::create_directories(dir_ / "local/of-another");
  const ProcessMesh mesh = single_mesh();
  Communicator& ranks = *mesh.world;
  {
    LocalCopies copies(recipe_, ranks, 6);
    copies.has_saved(6, ranks);  // the same again
    EXPECT_EQ(local_life_of(recipe_.run.dir), life_);
  }
  EXPECT_EQ(resume().path, saved(8));
  fs::remove_all(saved(8));
  {
    LocalCopies copies(recipe_, ranks, 6);
    copies.has_saved(7, ranks);
  }
  EXPECT_NE(local_life_of(recipe_.run.dir), life_);
  EXPECT_EQ(local_life_of(recipe_.run.dir).size(), life_.size());
  EXPECT_FALSE(fs::exists(life()));
  EXPECT_TRUE(fs::exists(dir_ / "local/of-another"));
  EXPECT_EQ(resume().path, saved(6));
}

// What was written behind the state that a run goes back to is never its state again.
TEST_F(CopiedRun, ARunThatGoesBackForgetsAllCopies) {
  copy(6).write_checkpoint(saved(6));
  copy(8).write_shares(life());
  LocalCopies copies(recipe_, *single_mesh().world, 6);
  copies.begin_again(*single_mesh().world);
  EXPECT_FALSE(fs::exists(life()));
  copy(8).write_shares(life());  // as of a host that was away
  EXPECT_EQ(resume().path, saved(6));
}

TEST_F(CopiedRun, WhatAHostHasIsListed) {
  copy(7).write_shares(life());
  copy(8).write_share(life(), 1);
  const auto all = local_copies_here(recipe_.run.dir, recipe_.checkpoint.local_dir);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].step, 7);
  EXPECT_EQ(all[0].here, (std::vector<int>{0, 1}));
  EXPECT_EQ(all[1].here, std::vector<int>{1});
  EXPECT_EQ(all[1].ranks, 2);
  EXPECT_GT(all[1].bytes, 48);
  EXPECT_TRUE(local_copies_here(recipe_.run.dir, "").empty());
}

}  // namespace
}  // namespace weft
