// What lies in RUN/checkpoints: what stays, what goes, and what an interruption leaves.
#include "weft/train/checkpoint_folders.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"
#include "weft/checkpoint/checkpoint_check.h"
#include "weft/comm/local_group.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::spill;
using testing::TempDir;

constexpr int64_t kHuge = int64_t{1} << 43;

// A checkpoint as far as its files and hashes go.
void make_checkpoint(const fs::path& folder, int64_t step) {
  fs::create_directories(folder / "weft");
  spill(folder / "config.json", "{}");
  spill(folder / "model.safetensors", "weights of " + std::to_string(step));
  spill(folder / "weft/state.json", "{\"format\": 2}");
  Manifest manifest{.step = step, .files = {}};
  manifest.add_others(folder);
  spill(folder / kManifestFile, to_text(manifest));
}

struct Folder {
  explicit Folder(const std::vector<int64_t>& steps) {
    spill(dir / "recipe.toml", "");
    for (const int64_t step : steps) make_checkpoint(at(step), step);
  }
  fs::path at(int64_t step) const { return dir / ("checkpoints/step-" + std::to_string(step)); }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(dir / "checkpoints"))
      all.push_back(entry.path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  }
  FoundCheckpoint find() const { return find_checkpoint(dir.path(), CheckpointPart::all, *single_mesh().world, 1); }
  FoundCheckpoint resume() const { return find_checkpoint_to_resume(dir.path(), *single_mesh().world, 1); }
  TempDir dir;
};

using Names = std::vector<std::string>;

TEST(CheckpointFolders, TheNewestStayWhateverTheirNumber) {
  const std::vector<fs::path> all{"a", "b", "c"};
  EXPECT_EQ(surplus_of(all, {.latest = 2, .whatever_age = {}}), std::vector<fs::path>{"a"});
  EXPECT_EQ(surplus_of(all, {.latest = 1, .whatever_age = {}}), (std::vector<fs::path>{"a", "b"}));
  EXPECT_TRUE(surplus_of(all, {.latest = 3, .whatever_age = {}}).empty());
  EXPECT_TRUE(surplus_of(all, {.latest = 0, .whatever_age = {}}).empty());
  EXPECT_EQ(surplus_of(all, {.latest = 1, .whatever_age = {"a"}}), std::vector<fs::path>{"b"});  // which stays
  const Folder run({5, 20, 100});
  prune_checkpoints(run.dir.path(), {.latest = 2, .whatever_age = {}});
  EXPECT_EQ(run.names(), (Names{"step-100", "step-20"}));
}

// Ends the process at each change in turn, as a kill would; then a run that goes on finds what it should.
TEST(CheckpointFolders, KilledAtAnyMomentOfPruningNoHalfCheckpointKeepsItsName) {
  int changes = 0;
  for (bool ended = true; ended; ++changes) {
    const Folder run({10, 20, 30});
    make_checkpoint(run.dir / "checkpoints/step-40.tmp", 40);
    const pid_t pid = fork();
    if (pid == 0) {
      int left = changes;
      prune_checkpoints(run.dir.path(), {.latest = 1, .whatever_age = {}}, [&] {
        if (left-- == 0) _exit(7);
      });
      _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    ended = WEXITSTATUS(status) == 7;
    for (const fs::path& folder : checkpoint_folders(run.dir.path()))
      EXPECT_EQ(check_checkpoint(folder, CheckpointPart::all, *single_mesh().world, 1).damage, "") << changes;
    EXPECT_EQ(run.find().path, run.at(30)) << changes;
    EXPECT_EQ(run.resume().path, run.at(30)) << changes;
    for (const std::string& name : run.names()) EXPECT_EQ(name.find('.'), std::string::npos) << name << " " << changes;
    prune_checkpoints(run.dir.path(), {.latest = 1, .whatever_age = {}});
    EXPECT_EQ(run.names(), Names{"step-30"}) << changes;
  }
  EXPECT_GT(changes, 10);  // two renames, and five entries of each folder
}

TEST(CheckpointFolders, HalfAFolderIsNoModel) {
  const Folder run({10, 20});
  fs::rename(run.at(10), run.at(10).string() + ".removing");
  fs::remove_all(run.at(20) / "weft");
  EXPECT_NE(why_no_model(run.at(10).string() + ".removing").find("left behind"), std::string::npos);
  EXPECT_NE(why_no_model(run.at(20)).find("half of a checkpoint"), std::string::npos);
  TempDir elsewhere;  // a checkpoint of another program
  fs::create_directories(elsewhere / "checkpoints/step-20");
  EXPECT_EQ(why_no_model(elsewhere / "checkpoints/step-20"), "");
}

TEST(CheckpointFolders, HalvesThatAnOlderWeftLeftGoWhenThereIsAWholeOne) {
  const Folder run({10, 20, 30});
  fs::remove_all(run.at(10) / "weft");
  EXPECT_EQ(run.resume().path, run.at(30));
  EXPECT_EQ(run.names(), (Names{"step-20", "step-30"}));
}

TEST(CheckpointFolders, TheOnlyWholeOneBetweenTwoRenamesGetsItsNameBack) {
  const Folder run({10});
  fs::rename(run.at(10), run.at(10).string() + ".old");
  EXPECT_EQ(run.resume().path, run.at(10));
}

TEST(CheckpointFolders, DamagedOnesArePassedOverSetAsideAndGoWhenTheyAreReplaced) {
  const Folder run({10, 20, 30});
  spill(run.at(30) / "config.json", "[]");
  fs::remove(run.at(20) / "model.safetensors");
  const FoundCheckpoint read = run.find();
  EXPECT_EQ(read.path, run.at(10));
  EXPECT_EQ(run.names(), (Names{"step-10", "step-20", "step-30"}));  // as they were
  ASSERT_EQ(read.notes.size(), 2u);
  EXPECT_NE(read.notes[0].find("step-30/config.json: it is not what was saved"), std::string::npos) << read.notes[0];
  EXPECT_NE(read.notes[1].find("step-20/model.safetensors: is missing"), std::string::npos) << read.notes[1];

  EXPECT_EQ(run.resume().path, run.at(10));
  EXPECT_EQ(run.names(), (Names{"step-10", "step-20.damaged", "step-30.damaged"}));
  make_checkpoint(run.at(20), 20);
  prune_checkpoints(run.dir.path(), {.latest = 1, .whatever_age = {}});
  EXPECT_EQ(run.names(), (Names{"step-20", "step-30.damaged"}));
}

TEST(CheckpointFolders, ARemovalOfADamagedOneThatWasCutOffIsFinished) {
  const Folder run({10});
  make_checkpoint(run.dir / "checkpoints/step-20.damaged.removing", 20);
  EXPECT_EQ(run.resume().path, run.at(10));
  EXPECT_EQ(run.names(), Names{"step-10"});
}

TEST(CheckpointFolders, WhereNoneIsWholeEachIsNamedAndNothingIsTouched) {
  const Folder run({10, 20});
  spill(run.at(10) / "config.json", "[]");
  fs::rename(run.at(20), run.at(30));  // says that it is of another step
  const std::string refused = error_of([&] { run.resume(); });
  EXPECT_NE(refused.find("step-10/config.json: it is not what was saved"), std::string::npos) << refused;
  EXPECT_NE(refused.find("step-30: was saved as that of step 20"), std::string::npos) << refused;
  EXPECT_EQ(run.names(), (Names{"step-10", "step-30"}));
  for (const char* name : {"step-10", "step-30"})
    fs::rename(run.dir / "checkpoints" / name, run.dir / "checkpoints" / (std::string(name) + ".damaged"));
  EXPECT_NE(error_of([&] { run.resume(); }).find("set aside as damaged before: step-10.damaged"), std::string::npos);
}

TEST(CheckpointFolders, ARunWithoutAnyBeginsAtTheStart) {
  const Folder run({});
  EXPECT_FALSE(run.resume().path);
  fs::create_directories(run.dir / "checkpoints/step-10.tmp");
  EXPECT_FALSE(run.resume().path);
  EXPECT_TRUE(run.names().empty());
}

// Says that it has as many bytes as no disk has; nothing of it lies on one.
void make_huge(const fs::path& checkpoint) {
  spill(checkpoint / "large", "");
  fs::resize_file(checkpoint / "large", kHuge);
}

std::vector<std::string> room_for(const Folder& run, const KeptCheckpoints& kept, int64_t bytes) {
  std::vector<std::string> notes;
  run_local(2, [&](Communicator& ranks) {
    const bool leads = ranks.rank() == 0;
    const auto said = make_room(run.dir.path(), leads ? kept : KeptCheckpoints(), bytes, ranks, 1);
    if (leads) notes = said;
  });
  return notes;
}

TEST(CheckpointFolders, RoomIsMadeOnlyWhereItSuffices) {
  const Folder run({10, 20, 30});
  spill(run.dir / "checkpoints/step-40.tmp", "");
  EXPECT_TRUE(room_for(run, {.latest = 3, .whatever_age = {}}, 1).empty());  // there is room
  EXPECT_EQ(run.names(), (Names{"step-10", "step-20", "step-30"}));
  EXPECT_TRUE(
      room_for(run, {.latest = 2, .whatever_age = {}}, kHuge).empty());  // nothing would suffice: only what is surplus
  EXPECT_EQ(run.names(), (Names{"step-20", "step-30"}));
  make_huge(run.at(20));
  EXPECT_TRUE(room_for(run, {.latest = 0, .whatever_age = {}}, kHuge).empty());
  EXPECT_EQ(run.names(), (Names{"step-20", "step-30"}));
  EXPECT_EQ(room_for(run, {.latest = 2, .whatever_age = {}}, kHuge).size(), 1u);
  EXPECT_EQ(run.names(), Names{"step-30"});
}

TEST(CheckpointFolders, ForRoomTheDamagedGoFirstAndTheNewestWholeOneAndTheBestStay) {
  const Folder run({10, 20, 30, 40, 50});
  spill(run.at(50) / "config.json", "[]");
  spill(run.at(40) / "config.json", "[]");
  make_huge(run.at(50));
  const auto notes = room_for(run, {.latest = 5, .whatever_age = {run.at(10)}}, kHuge);
  EXPECT_EQ(run.names(), (Names{"step-10", "step-30"}));
  ASSERT_EQ(notes.size(), 5u);
  EXPECT_NE(notes[0].find("step-50/config.json: it is not what was saved"), std::string::npos) << notes[0];
  EXPECT_NE(notes[2].find("removed " + run.at(40).string()), std::string::npos) << notes[2];
  EXPECT_NE(notes[4].find("removed " + run.at(20).string()), std::string::npos) << notes[4];
}

TEST(CheckpointFolders, WhereNoneIsWholeNoneGoesForRoom) {
  const Folder run({10, 20});
  for (const int64_t step : {10, 20}) spill(run.at(step) / "config.json", "[]");
  make_huge(run.at(10));
  EXPECT_NE(error_of([&] {
              room_for(run, {.latest = 2, .whatever_age = {}}, kHuge);
            }).find("none of its checkpoints is whole"),
            std::string::npos);
  EXPECT_EQ(run.names(), (Names{"step-10", "step-20"}));
}

}  // namespace
}  // namespace weft
