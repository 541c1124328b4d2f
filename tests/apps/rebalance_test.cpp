// Runs whose shares of micro-batches change while they go on.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "apps/small_run.h"

namespace weft {
namespace {

using testing::Finished;
using Words = std::vector<std::string>;

class Rebalanced : public testing::SmallRun {
 protected:
  // Of 62 steps, twice the three windows of ten that a change takes: on a busy machine a window may see no slow rank.
  Finished train(const std::string& name, const std::string& faults, const Words& more) {
    fail_by(faults);
    Words words{"train",
                (dir_ / "r.toml").string(),
                "run.dir=" + (dir_ / name).string(),
                "train.global_batch_size=8",
                "train.train_iters=62",
                "train.numerics=invariant",
                "checkpoint.save_interval=0"};
    words.insert(words.end(), more.begin(), more.end());
    return testing::weft(words);
  }
};
using RebalancedSlow = Rebalanced;

// In place, at a step's boundary: the same batches, and so the bits of one rank.
TEST_F(Rebalanced, ARankThatIsSlowedDownGetsFewerMicroBatchesAndNoBitChanges) {
  ASSERT_EQ(train("one", "", {}).status, 0);
  const Finished f = train("two", "drag@run:1:0", {"parallel.dp=2", "train.rebalance=true"});
  ASSERT_EQ(f.status, 0) << f.err;
  const auto events = events_of("two", "rebalance");
  ASSERT_GE(events.size(), 1u);
  const auto step = events[0]["step"].get<int64_t>();
  EXPECT_GE(step, 30);
  EXPECT_EQ(step % 10, 0);
  EXPECT_EQ(events[0]["rank"], 1);
  EXPECT_TRUE(events[0]["done"].get<bool>());
  EXPECT_LT(events[0]["expected_s"].get<double>(), events[0]["compute_s"].get<double>());
  const auto shares = events[0]["micro_batches"].get<std::vector<int64_t>>();
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_EQ(shares[0] + shares[1], 8);
  EXPECT_LT(shares[1], 4);
  EXPECT_SAYS(f.err, fmt::format("step {}: the slowest data parallel rank, 1, computes ", step));
  EXPECT_SAYS(f.err,
              fmt::format("step {}: goes on with parallel.micro_batches = [{}, {}]", step, shares[0], shares[1]));
  EXPECT_EQ(records_of("two"), 62u);
  EXPECT_TRUE(weights_of("two", 62) == weights_of("one", 62));
  for (const char* file : {"weft/optimizer.safetensors", "weft/state.json"})
    EXPECT_TRUE(file_of("two", 62, file) == file_of("one", 62, file)) << file;
}

// The quick pipeline keeps one micro-batch, and had to keep two.
TEST_F(RebalancedSlow, SharesForWhichNoMemoryWasPlannedAreNotTaken) {
  const Finished f = train("r", "drag@run:1:0",
                           {"parallel.dp=2", "parallel.pp=2", "parallel.micro_batches=[1, 7]", "train.rebalance=true"});
  ASSERT_EQ(f.status, 0) << f.err;
  const auto events = events_of("r", "rebalance");
  ASSERT_GE(events.size(), 1u);
  EXPECT_FALSE(events[0]["done"].get<bool>());
  EXPECT_SAYS(f.err, "for which a rank has no room in the memory that was planned: shares stay");
}

// A step behind the change, and one that ends the run there.
TEST_F(RebalancedSlow, ARunGoesOnWithWhateverSharesItEndedWith) {
  const std::string constant = "optimizer.lr_decay_style=constant";  // whatever train_iters is
  ASSERT_EQ(train("one", "", {constant, "train.train_iters=66"}).status, 0);
  ASSERT_EQ(train("two", "drag@run:1:0", {constant, "parallel.dp=2", "train.rebalance=true"}).status, 0);
  ASSERT_GE(events_of("two", "rebalance").size(), 1u);
  ASSERT_EQ(
      train("two", "", {constant, "train.train_iters=66", "parallel.dp=2", "parallel.micro_batches=[3, 5]"}).status, 0);
  EXPECT_EQ(records_of("two"), 66u);
  ASSERT_FALSE(weights_of("two", 66).empty());
  EXPECT_TRUE(weights_of("two", 66) == weights_of("one", 66));
  const char* const state = "weft/optimizer.safetensors";
  EXPECT_TRUE(file_of("two", 66, state) == file_of("one", 66, state));
}

}  // namespace
}  // namespace weft
