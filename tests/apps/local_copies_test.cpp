// Copies of a run's state on its hosts' own disks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "apps/small_run.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using Settings = std::vector<std::string>;

// Checkpoints of steps 6 and 12, and a copy of step 4 and 8 each. All are kept, for comparison.
class LocalCopiesOfRuns : public testing::SmallRun {
 protected:
  Settings settings(const Settings& more) const {
    Settings all{"checkpoint.save_interval=6", "checkpoint.keep_latest=0", "train.numerics=invariant",
                 "checkpoint.local_interval=4", "checkpoint.local_dir=" + (dir_ / "local").string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Finished train(const std::string& name, const Settings& more = {}) { return run("train", settings(more), name); }
  // One that nothing disturbs, of one rank unless said otherwise, with a checkpoint after each second step.
  void train_whole(Settings more = {}) {
    more.insert(more.end(), {"train.numerics=invariant", "checkpoint.keep_latest=0"});
    const Finished f = run("train", more, "whole");
    ASSERT_EQ(f.status, 0) << f.err;
  }
  // The shares that a run has here, by their names.
  Settings shares_of(const std::string& name) const {
    Settings all;
    std::error_code none;
    for (const auto& life : fs::directory_iterator(dir_ / "local", none))
      if (life.path().filename().string().starts_with(name + "-"))
        for (const auto& share : fs::directory_iterator(life)) all.push_back(share.path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  }
  fs::path share(const std::string& name, const std::string& called) const {
    for (const auto& life : fs::directory_iterator(dir_ / "local"))
      if (life.path().filename().string().starts_with(name + "-")) return life.path() / called;
    return {};
  }
  // Trains till the copy of step 8 is whole, and kills the run there: the newest checkpoint is that of step 6.
  void kill_behind_the_copy(const std::string& name, const Settings& layout, int ranks) {
    fail_by("hang@step:0:8");
    Settings args{"train", (dir_ / "r.toml").string(), "run.dir=" + (dir_ / name).string()};
    for (const std::string& s : settings(layout)) args.push_back(s);
    testing::Process process({.args = args});
    fail_by("");
    const auto is_there = [&] {
      const Settings all = shares_of(name);
      return std::count_if(all.begin(), all.end(), [&](const std::string& one) {
               return one.starts_with("step-8.") && one.ends_with(fmt::format("-of-{}", ranks));
             }) == ranks;
    };
    EXPECT_TRUE(testing::wait_until(is_there, 6000)) << fmt::format("{}", fmt::join(shares_of(name), " "));
  }
  void expect_as_saved_at_8(const std::string& name) {
    for (const char* file : {"model.safetensors", "weft/optimizer.safetensors", "weft/state.json", "config.json"}) {
      EXPECT_FALSE(file_of("whole", 8, file).empty()) << file;
      EXPECT_TRUE(file_of(name, 8, file) == file_of("whole", 8, file)) << file;
    }
  }
};

// Two ranks that each have half of weights and state write it; one goes on from it, to the bits of a run that nothing
// has disturbed.
TEST_F(LocalCopiesOfRuns, AreWhatAnotherLayoutGoesOnFromToTheBit) {
  train_whole();
  kill_behind_the_copy("r", {"parallel.dp=2", "parallel.zero_stage=3"}, 2);
  EXPECT_EQ(shares_of("r"),
            (Settings{"step-4.rank-0-of-2", "step-4.rank-1-of-2", "step-8.rank-0-of-2", "step-8.rank-1-of-2"}));
  const Finished f = train("r");
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "step-8 was made of the local copy of step 8, which 2 ranks have written");
  EXPECT_SAYS(f.err, "checkpoints/step-8, after step 8");
  EXPECT_EQ(events_of("r", "local_taken").size(), 1u);
  expect_as_saved_at_8("r");
  EXPECT_TRUE(weights_of("r") == weights_of("whole"));
  EXPECT_TRUE(file_of("r", 12, "weft/optimizer.safetensors") == file_of("whole", 12, "weft/optimizer.safetensors"));
  // The run is saved: nothing is left of them.
  EXPECT_TRUE(shares_of("r").empty());
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_ / "local"), fs::directory_iterator()), 0);
}

using LocalCopiesOfRunsSlow = LocalCopiesOfRuns;

// What the one layout has written, the other loads. The bytes are those of a checkpoint of the layout that wrote.
TEST_F(LocalCopiesOfRunsSlow, AreReadByAnyLayout) {
  const Settings mixture{"model.path=" + (fs::path(testing::kSourceDir) / "tests/golden/mixtral").string(),
                         "data.train=" + (fs::path(testing::kSourceDir) / "tests/golden/mixtral/tokens.bin").string(),
                         "train.numerics=fast"};
  const auto with = [](Settings some, const Settings& more) {
    some.insert(some.end(), more.begin(), more.end());
    return some;
  };
  struct Case {
    Settings common, writes, reads;
    int ranks;
  };
  const std::vector<Case> cases{{{"train.numerics=fast"}, {"parallel.pp=2"}, {"parallel.tp=2"}, 2},
                                {{"train.numerics=fast"}, {"parallel.tp=2", "parallel.dp=2"}, {"parallel.pp=2"}, 4},
                                {{"train.precision=bf16", "train.numerics=fast"},
                                 {"parallel.dp=2", "parallel.zero_stage=1"},
                                 {"parallel.cp=2"},
                                 2},
                                {{"optimizer.name=adamw8bit", "optimizer.min_8bit_size=512", "train.numerics=fast"},
                                 {"parallel.tp=2"},
                                 {"parallel.dp=2", "parallel.zero_stage=2"},
                                 2},
                                {{"adapter.kind=lora", "model.init=pretrained"}, {"parallel.dp=2"}, {}, 2},
                                {mixture, {"parallel.dp=2", "parallel.ep=2"}, {"parallel.tp=2"}, 2}};
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [common, writes, reads, ranks] = cases[i];
    const std::string name = fmt::format("r{}", i);
    SCOPED_TRACE(fmt::format("{} {}", fmt::join(common, " "), fmt::join(writes, " ")));
    kill_behind_the_copy(name, with(common, writes), ranks);
    const Finished whole =
        run("train", with(with(settings(common), writes), {"checkpoint.save_interval=8"}), name + "s");
    ASSERT_EQ(whole.status, 0) << whole.err;
    const Finished f = train(name, with(common, reads));
    ASSERT_EQ(f.status, 0) << f.err;
    EXPECT_SAYS(f.err, "step-8 was made of the local copy of step 8");
    const fs::path made = dir_ / name / "checkpoints/step-8", saved = dir_ / (name + "s") / "checkpoints/step-8";
    for (const auto& [file, bytes] : testing::bytes_of_folder(saved))
      if (file != "weft/recipe.toml" && file != "weft/manifest.json") {
        EXPECT_TRUE(testing::slurp(made / file) == bytes) << file;
      }
  }
}

// Between the writing of a share and its name there is no copy; what is left goes at the next start.
TEST_F(LocalCopiesOfRuns, OneThatWasCutOffIsNoCopy) {
  fail_by("kill@local_written:0:8");
  EXPECT_EQ(train("r").status, 128 + SIGKILL);
  fail_by("");
  const Settings left = shares_of("r");
  EXPECT_NE(std::find(left.begin(), left.end(), "step-8.rank-0-of-1.tmp"), left.end());
  const Finished f = train("r");
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "checkpoints/step-6, after step 6");
  EXPECT_TRUE(shares_of("r").empty());
}

// A host was not there when the run began again, and is when it does so once more, before it has a state of its own.
TEST_F(LocalCopiesOfRuns, OneThatWasPassedOverStaysUntilTheRunHasANewerState) {
  kill_behind_the_copy("r", {}, 1);
  const fs::path away = share("r", "step-8.rank-0-of-1"), older = share("r", "step-4.rank-0-of-1");
  fs::rename(away, dir_ / "away");
  fail_by("kill@step:0:7");
  const Finished killed = train("r");
  fail_by("");
  EXPECT_EQ(killed.status, 128 + SIGKILL);
  EXPECT_SAYS(killed.err, "checkpoints/step-6, after step 6");
  EXPECT_TRUE(fs::exists(older));
  fs::rename(dir_ / "away", away);
  const Finished f = train("r");
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "step-8 was made of the local copy of step 8");
  EXPECT_TRUE(shares_of("r").empty());
}

TEST_F(LocalCopiesOfRunsSlow, ADamagedOneIsPassedOverWithTheReason) {
  train_whole();
  kill_behind_the_copy("r", {}, 1);
  const fs::path data = share("r", "step-8.rank-0-of-1") / "data";
  std::string text = testing::slurp(data);
  text[text.size() / 3] ^= 4;
  testing::spill(data, text);
  const Finished f = train("r");
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "WARNING: the local copy of step 8 is passed over: ");
  EXPECT_SAYS(f.err, "step-8.rank-0-of-1/data: is not what was saved");
  EXPECT_SAYS(f.err, "checkpoints/step-6, after step 6");
  EXPECT_EQ(events_of("r", "local_passed_over").size(), 1u);
  EXPECT_TRUE(weights_of("r") == weights_of("whole"));
}

// Of a run whose folder was removed, nothing is taken by the one that begins in its place.
TEST_F(LocalCopiesOfRuns, ARunThatBeginsAgainTakesNoneOfTheOneBefore) {
  kill_behind_the_copy("r", {}, 1);
  fs::remove_all(dir_ / "r/checkpoints");
  fs::remove_all(dir_ / "r");
  const Finished f = train("r", {"train.train_iters=2"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(f.err.find("local copy"), std::string::npos) << f.err;
  EXPECT_FALSE(fs::exists(dir_ / "r/checkpoints/step-8"));
  EXPECT_EQ(records_of("r"), 2u);
}

// No folder can be made below a file.
TEST_F(LocalCopiesOfRuns, ThatFailAreCountedAndStopNothing) {
  testing::spill(dir_ / "file", "");
  const Finished f = train("r", {"checkpoint.local_dir=" + (dir_ / "file/x").string()});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_SAYS(f.err, "step 4: NO LOCAL COPY, the run goes on: ");
  EXPECT_SAYS(f.err, "2 local copies could not be written");
  const auto events = events_of("r", "local_save_failed");
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1]["step"], 8);
  EXPECT_EQ(events[1]["failed"], 2);
  EXPECT_EQ(records_of("r"), 12u);
  EXPECT_TRUE(events_of("r", "local_saved").empty());
}

// Whatever call fails on the local disk, the run comes to its end, with the same bits.
TEST_F(LocalCopiesOfRunsSlow, AFullDiskOfTheHostStopsNothing) {
  if (std::string(testing::kDiskLayer).empty()) GTEST_SKIP() << "sanitizers have layers of their own";
  train_whole();
  for (int call = 1; call <= 61; call += 6)
    for (const std::string& fault : {fmt::format("{} {} on", call, ENOSPC), fmt::format("{} {} once", call, EIO)}) {
      fs::remove_all(dir_ / "r");
      ::setenv("LD_PRELOAD", testing::kDiskLayer, 1);
      ::setenv("WEFT_DISK_BELOW", (dir_ / "local").c_str(), 1);
      ::setenv("WEFT_DISK_FAIL", fault.c_str(), 1);
      const Finished f = train("r");
      for (const char* name : {"LD_PRELOAD", "WEFT_DISK_BELOW", "WEFT_DISK_FAIL"}) ::unsetenv(name);
      EXPECT_EQ(f.status, 0) << fault << f.err;
      EXPECT_TRUE(weights_of("r") == weights_of("whole")) << fault;
    }
}

// Both are written from one copy in memory: while a checkpoint is, no local copy begins.
TEST_F(LocalCopiesOfRunsSlow, ACopyLeavesACheckpointItsRoom) {
  train_whole();
  fail_by("slow@written:0:6");
  const Finished f = train("r", {"checkpoint.async_save=true", "checkpoint.local_interval=1"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(f.err.find("NOT SAVED"), std::string::npos) << f.err;
  for (const char* file : {"model.safetensors", "weft/optimizer.safetensors"})
    EXPECT_TRUE(file_of("r", 6, file) == file_of("whole", 6, file)) << file;
  for (const auto& event : events_of("r", "local_saved")) EXPECT_LE(event["step"], 5);
}

TEST_F(LocalCopiesOfRunsSlow, ASupervisedRunGoesOnFromThem) {
  train_whole();
  fail_by("slow@step:0:9,kill@step:0:11");  // the slow step leaves copies of those before it time to be whole
  Settings all{"supervise", (dir_ / "r.toml").string(), "run.dir=" + (dir_ / "r").string()};
  for (const std::string& s : settings({"checkpoint.save_interval=100", "checkpoint.local_interval=1"}))
    all.push_back(s);
  const Finished f = testing::weft(all);
  ASSERT_EQ(f.status, 0) << f.err;
  ASSERT_EQ(events_of("r", "local_taken").size(), 1u);
  EXPECT_GE(events_of("r", "local_taken")[0]["step"], 1);
  EXPECT_EQ(causes_of("r"), (Settings{"killed", "finished"}));
  EXPECT_TRUE(weights_of("r") == weights_of("whole"));
}

TEST_F(LocalCopiesOfRuns, ArePlannedListedAndRefusedWhereTheyCannotBe) {
  const auto plan = [&](const Settings& more) {
    Settings all{"plan", (dir_ / "r.toml").string()};
    all.insert(all.end(), more.begin(), more.end());
    return testing::weft(all);
  };
  const std::string dir = "checkpoint.local_dir=" + (dir_ / "local").string();
  const Finished with = plan({"--json", dir, "checkpoint.local_interval=1"});
  const nlohmann::json memory = nlohmann::json::parse(with.out)["memory"];
  EXPECT_GT(memory["snapshot"]["bytes"].get<int64_t>(), 3 * 4 * 250432 - 64) << "all weights with two moments";
  const auto refused = [&](const Settings& more) {
    const Finished f = plan(more);
    EXPECT_EQ(f.status, 2) << fmt::format("{}", fmt::join(more, " "));
    return f.err;
  };
  EXPECT_SAYS(refused({"checkpoint.local_interval=3"}), "there is no folder for the copies");
  EXPECT_SAYS(refused({dir}), "no step writes a copy there");
  EXPECT_SAYS(refused({dir, "checkpoint.local_interval=4"}), "each of these steps has a checkpoint");
  EXPECT_SAYS(refused({"checkpoint.local_neighbour=true"}), "there are no local copies");
  EXPECT_SAYS(refused({dir, "checkpoint.local_interval=1", "checkpoint.local_neighbour=true"}),
              "checkpoint.local_neighbour = true has no effect: all ranks are threads of one process, on one host");
  EXPECT_EQ(plan({dir, "checkpoint.local_interval=1", "checkpoint.local_neighbour=true", "run.ranks=mpi"}).status, 0);
}

}  // namespace
}  // namespace weft
