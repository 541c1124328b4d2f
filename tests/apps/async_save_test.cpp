// Checkpoints that are written while the run goes on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "apps/small_run.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::Finished;
using testing::weft;
using Settings = std::vector<std::string>;

class AsyncSave : public testing::SmallRun {
 protected:
  Finished train(const std::string& name, Settings more) {
    more.insert(more.end(), {"checkpoint.async_save=true", "checkpoint.keep_latest=0"});
    return run("train", more, name);
  }
  std::vector<std::string> words(const std::string& name, const Settings& more) {
    Settings all{"train", (dir_ / "r.toml").string(), "run.dir=" + (dir_ / name).string(),
                 "checkpoint.async_save=true"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void expect_same_on(Settings layout) {
    const Finished beside = train("beside" + layout[0], layout);
    layout.push_back("checkpoint.keep_latest=0");
    const Finished whole = run("train", layout, layout[0]);
    ASSERT_EQ(whole.status, 0) << whole.err;
    ASSERT_EQ(beside.status, 0) << beside.err;
    expect_same_checkpoints("beside" + layout[0], layout[0]);
  }
  void expect_same_checkpoints(const std::string& name, const std::string& as) {
    for (const int step : {2, 6, 12})
      for (const char* file : {"model.safetensors", "weft/optimizer.safetensors", "weft/state.json", "config.json"}) {
        EXPECT_FALSE(file_of(as, step, file).empty()) << as << " " << step << " " << file;
        EXPECT_EQ(file_of(name, step, file), file_of(as, step, file)) << name << " " << step << " " << file;
      }
  }
};

TEST_F(AsyncSave, HasTheBytesOfASaveThatIsWaitedFor) { expect_same_on({"parallel.dp=2", "parallel.zero_stage=3"}); }

using AsyncSaveSlow = AsyncSave;

TEST_F(AsyncSaveSlow, HasTheBytesOfASaveThatIsWaitedForOnOtherLayouts) {
  expect_same_on({"parallel.pp=2"});
  expect_same_on({"parallel.tp=2", "optimizer.name=adamw8bit", "optimizer.min_8bit_size=512"});
}

// While the disk is slow, steps are done; and the next save waits for the one before.
TEST_F(AsyncSave, StepsGoOnWhileItIsWritten) {
  fail_by("slow@written:0:4");
  testing::Process process({.args = words("r", {"checkpoint.save_interval=4"})});
  ASSERT_TRUE(testing::wait_until([&] { return records_of("r") >= 8; }));
  EXPECT_TRUE(fs::exists(dir_ / "r/checkpoints/step-4.tmp"));
  EXPECT_FALSE(fs::exists(dir_ / "r/checkpoints/step-4"));
  const Finished f = process.wait();
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(fs::exists(dir_ / "r/checkpoints/step-8"));
  EXPECT_FALSE(fs::exists(dir_ / "r/checkpoints/step-4.tmp"));
}

// Wherever it is killed, the checkpoint is the old one or the new one, and the end is the same.
TEST_F(AsyncSaveSlow, KilledAtAnyPointOfASaveItGoesOnToTheSameEnd) {
  ASSERT_EQ(run("train", {"checkpoint.keep_latest=0"}, "whole").status, 0);
  const auto newest = [&](const std::string& name) {
    return fs::exists(dir_ / name / "checkpoints/step-6") ? 6 : fs::exists(dir_ / name / "checkpoints/step-4") ? 4 : 0;
  };
  for (const auto& [point, after] : {std::pair{"copied", 4}, {"written", 4}, {"read", 4}, {"committed", 6}}) {
    const std::string name = point;
    fail_by(fmt::format("kill@{}:0:6", point));
    EXPECT_EQ(train(name, {}).status, 128 + SIGKILL) << point;
    EXPECT_EQ(newest(name), after) << point;
    fail_by("");
    ASSERT_EQ(train(name, {}).status, 0) << point;
    EXPECT_EQ(weights_of(name), weights_of("whole")) << point;
    EXPECT_EQ(file_of(name, 12, "weft/optimizer.safetensors"), file_of("whole", 12, "weft/optimizer.safetensors"));
    for (const auto& left : fs::directory_iterator(dir_ / name / "checkpoints"))
      EXPECT_EQ(left.path().extension(), "") << left.path();
  }
}

TEST_F(AsyncSaveSlow, OneThatFailsIsToldAndTheRunGoesOn) {
  ASSERT_EQ(train("r", {"train.train_iters=4"}).status, 0);
  testing::Command command{.args = words("r", {"train.train_iters=8", "checkpoint.keep_latest=0"})};
  command.largest_file = 100000;  // the weights do not fit
  const Finished f = testing::run(command);
  EXPECT_EQ(f.status, 89) << f.err;
  EXPECT_SAYS(f.err, "step 6: NOT SAVED, older checkpoints are kept: ");
  EXPECT_EQ(records_of("r"), 8u);
  EXPECT_TRUE(fs::exists(dir_ / "r/checkpoints/step-4"));
}

TEST_F(AsyncSave, ItsCopyIsPlanned) {
  const auto bytes = [&](Settings settings) {
    settings.insert(settings.begin(), {"plan", (dir_ / "r.toml").string(), "--json", "checkpoint.async_save=true"});
    return nlohmann::json::parse(weft(settings).out)["memory"]["snapshot"]["bytes"].get<int64_t>();
  };
  constexpr int64_t kParams = 250432;  // each with two moments
  EXPECT_EQ(bytes({}) / 64, 3 * 4 * kParams / 64);
  EXPECT_NEAR(double(bytes({"parallel.dp=2"})), 3 * 4 * kParams / 2, 2000);
  const Finished f =
      weft({"plan", (dir_ / "r.toml").string(), "checkpoint.async_save=true", "checkpoint.save_interval=0"});
  EXPECT_EQ(f.status, 2);
  EXPECT_SAYS(f.err, "there is only the last checkpoint, which is waited for");
}

}  // namespace
}  // namespace weft
