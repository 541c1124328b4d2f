// Which samples a run takes that is killed again and again while files and epochs come to their ends.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <numeric>
#include <set>

#include "apps/small_run.h"
#include "token_files.h"

namespace weft {
namespace {

using testing::Finished;
using Words = std::vector<std::string>;

// Two files of three and four samples, one sample a step: 21 steps are three epochs. A checkpoint after every second
// step, so half of the resumed runs do a step again.
class EpochEndSlow : public testing::SmallRun {
 protected:
  static constexpr int kEpoch = 7, kSteps = 21;
  void SetUp() override {
    SmallRun::SetUp();
    std::vector<int32_t> ids(size_t(kEpoch) * 8 + 2);
    std::iota(ids.begin(), ids.end(), 7);
    const std::span<const int32_t> all(ids);
    testing::write_raw_tokens(dir_ / "a.bin", all.first(3 * 8 + 1), "uint16");
    testing::write_raw_tokens(dir_ / "b.bin", all.subspan(3 * 8 + 1), "uint16");
  }
  Words words(const Words& more) const {
    Words all{fmt::format("data.train=[\"{}\",\"{}\"]", (dir_ / "a.bin").string(), (dir_ / "b.bin").string()),
              "train.global_batch_size=1", fmt::format("train.train_iters={}", kSteps)};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // Killed before each step from the second to the last, each time by the process that the kill before has led to.
  void train_killed(const std::string& name, const Words& more) {
    for (int done = 1; done < kSteps; ++done) {
      fail_by(fmt::format("kill@step:0:{}", done));
      const Finished f = run("train", words(more), name);
      ASSERT_EQ(f.status, 128 + SIGKILL) << done << f.err;
    }
    fail_by("");
    const Finished f = run("train", words(more), name);
    ASSERT_EQ(f.status, 0) << f.err;
  }
  std::vector<double> losses_of(const std::string& name) {
    std::vector<double> losses;
    for (const nlohmann::json& line : steps_of(name)) {
      EXPECT_EQ(line["step"], losses.size() + 1);
      losses.push_back(line["loss"]);
    }
    return losses;
  }
};

TEST_F(EpochEndSlow, KilledAtEachStepItHasTheLossesAndBitsOfARunThatIsNot) {
  const Finished f = run("train", words({}), "whole");
  ASSERT_EQ(f.status, 0) << f.err;
  ASSERT_NO_FATAL_FAILURE(train_killed("r", {}));
  EXPECT_EQ(losses_of("r").size(), size_t(kSteps));
  EXPECT_EQ(losses_of("r"), losses_of("whole"));
  for (const char* file : {"model.safetensors", "weft/optimizer.safetensors", "weft/state.json"})
    EXPECT_TRUE(file_of("r", kSteps, file) == file_of("whole", kSteps, file)) << file;
}

// Under a learning rate that changes no weight, a loss tells which sample it is of.
TEST_F(EpochEndSlow, KilledAtEachStepItTakesEachSampleOnceAnEpoch) {
  ASSERT_NO_FATAL_FAILURE(train_killed("r", {"optimizer.lr=1e-30", "optimizer.weight_decay=0"}));
  const std::vector<double> losses = losses_of("r");
  ASSERT_EQ(losses.size(), size_t(kSteps));
  const std::set<double> samples(losses.begin(), losses.begin() + kEpoch);
  EXPECT_EQ(samples.size(), size_t(kEpoch));
  std::set<std::vector<double>> orders;
  for (int first = 0; first < kSteps; first += kEpoch) {
    const std::vector<double> epoch(losses.begin() + first, losses.begin() + first + kEpoch);
    EXPECT_EQ(std::set<double>(epoch.begin(), epoch.end()), samples) << "from step " << first + 1;
    orders.insert(epoch);
  }
  EXPECT_EQ(orders.size(), 3u) << "an epoch has another's order";
}

}  // namespace
}  // namespace weft
