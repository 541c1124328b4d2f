#include "weft/ops/replayed.h"

#include <gtest/gtest.h>

#include "ops/operands.h"
#include "support.h"

namespace weft {
namespace {

// Says what it is given: the number of each op's factor, or "[1 2]" of ops replayed by one call.
class Telling final : public RecordingBackend, private IssuedOps {
 public:
  explicit Telling(std::string& told) : told_(told) {}
  void run(const AnyOp& op) override {
    std::string name(op.name());
    if (const auto* sum = op.as<Axpby>()) name = fmt::format("{}", sum->a);
    if (op.as<Attention>() != nullptr) name = fmt::format("attention:{}", op.spans().size());
    (is_recording_ ? kept_ : told_) += name + " ";
  }
  void wait_all() override { told_ += "| "; }
  IssuedOps* issued() override { return this; }
  Recorded record(const std::function<void()>& give) override {
    ++num_recorded;
    if (!why_none.empty() || not_yet) return {nullptr, why_none};
    is_recording_ = true;
    kept_.clear();
    give();
    is_recording_ = false;
    return {std::make_unique<Told>(kept_), ""};
  }
  void replay(Record& record) override { told_ += "[" + static_cast<Told&>(record).ops + "] "; }
  std::string why_none;
  bool not_yet = false;
  int num_recorded = 0;

 private:
  DeviceQueue* issue_all() override {
    told_ += ". ";
    return nullptr;
  }
  void call_before_waits(std::function<void()>) override {}
  Stamp stamp() override {
    told_ += "stamp ";
    return Stamp(1);
  }
  int64_t take_time_ns(Stamp) override { return 0; }
  struct Told final : Record {
    explicit Told(std::string ops) : ops(std::move(ops)) {}
    std::string ops;
  };
  std::string& told_;
  std::string kept_;
  bool is_recording_ = false;
};

class ReplayedTest : public ::testing::Test {
 protected:
  // Ops with these factors, then a wait. What the device was told.
  std::string told_of(std::initializer_list<double> factors, const Tensor* to = nullptr) {
    told_.clear();
    for (const double a : factors) backend_.run(Axpby{.x = x_, .out = to != nullptr ? *to : y_, .a = a});
    backend_.wait_all();
    return told_;
  }
  std::string told_of_attention(int64_t sample, double dropped, int64_t rows) {
    told_.clear();
    for (int i = 0; i < 8; ++i) {
      const std::vector<AttentionSpan> spans{{.q_count = rows, .k_count = rows, .sample = sample}};
      backend_.run(Attention{
          .q = x_, .k = x_, .v = x_, .o = y_, .lse = y_, .spans = spans, .heads = {}, .dropout = {dropped, 1}});
    }
    backend_.wait_all();
    return told_;
  }

  std::string told_, warned_;
  testing::Operands operands_{DType::f32, 0};
  Tensor x_ = operands_.act(3, 8), y_ = operands_.act(3, 8), z_ = operands_.act(3, 8);
  Telling* device_ = new Telling(told_);  // the backend's
  Replayed backend_{std::unique_ptr<RecordingBackend>(device_), [this](const std::string& why) { warned_ += why; }};
};

TEST_F(ReplayedTest, GivesOpsThatComeAgainByOneCall) {
  EXPECT_EQ(told_of({1, 2, 3, 4, 5, 6, 7, 8}), "1 2 3 4 5 6 7 8 | ");
  EXPECT_EQ(told_of({1, 2, 3, 4, 5, 6, 7, 8}), "1 2 3 4 5 6 7 8 | ");
  EXPECT_EQ(backend_.num_records(), 1);
  // Before the wait: a device that is given something begins.
  EXPECT_EQ(told_of({1, 2, 3, 4, 5, 6, 7, 8}), "[1 2 3 4 5 6 7 8 ] | ");
  EXPECT_EQ(told_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), "[1 2 3 4 5 6 7 8 ] 9 10 | ");
  EXPECT_EQ(backend_.num_replays(), 2);
}

TEST_F(ReplayedTest, OpsThatDifferRunAsTheyCome) {
  told_of({1, 2, 3, 4, 5, 6, 7, 8});
  told_of({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(told_of({1, 2, 3, 4, 5, 6, 7, 9}), "1 2 3 4 5 6 7 9 | ");       // another factor
  EXPECT_EQ(told_of({1, 2, 3, 4, 5, 6, 7, 8}, &z_), "1 2 3 4 5 6 7 8 | ");  // another tensor
  EXPECT_EQ(told_of({1, 2, 3}), "1 2 3 | ");                                // fewer
  EXPECT_EQ(told_of({9, 1, 2, 3, 4, 5, 6, 7, 8}), "9 1 2 3 4 5 6 7 8 | ");  // from another beginning
  EXPECT_EQ(told_of({1, 2, 3, 4, 5, 6, 7, 8}), "[1 2 3 4 5 6 7 8 ] | ");    // and the same again
  EXPECT_EQ(backend_.num_records(), 1);
}

TEST_F(ReplayedTest, TakesWhatEachOfTwoBeginningsLeadsTo) {
  for (int i = 0; i < 2; ++i) {
    told_of({1, 2, 3, 4, 5, 6, 7, 8});
    told_of({1, 2, 3, 4, 5, 6, 7, 9, 10});
  }
  EXPECT_EQ(told_of({1, 2, 3, 4, 5, 6, 7, 9, 10}), "[1 2 3 4 5 6 7 9 10 ] | ");
  EXPECT_EQ(told_of({1, 2, 3, 4, 5, 6, 7, 8}), "[1 2 3 4 5 6 7 8 ] | ");
  EXPECT_EQ(told_of({1, 2, 3, 4, 5, 6, 7, 7}), "1 2 3 4 5 6 7 7 | ");
}

TEST_F(ReplayedTest, AStampComesBehindAllOpsBeforeIt) {
  for (int i = 0; i < 2; ++i) told_of({1, 2, 3, 4, 5, 6, 7, 8});
  const auto stamped = [&] {
    told_.clear();
    for (double a = 1; a <= 8; ++a) {
      backend_.run(Axpby{.x = x_, .out = y_, .a = a});
      if (a == 3 || a == 4) backend_.issued()->stamp();
    }
    backend_.wait_all();
    return told_;
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(stamped(), "1 2 3 stamp 4 stamp 5 6 7 8 | ");
  EXPECT_EQ(told_of({1, 2, 3, 4, 5, 6, 7, 8}), "[1 2 3 4 5 6 7 8 ] | ");
  EXPECT_EQ(device_->num_recorded, 1);
}

// Others' queues may wait for what was held.
TEST_F(ReplayedTest, IssuingEndsAChunkAndHoldsNothingBack) {
  const auto issued = [&](int ops) {
    told_.clear();
    for (double a = 1; a <= 20; ++a) {
      if (a > ops && a < 11) continue;
      backend_.run(Axpby{.x = x_, .out = y_, .a = a});
      if (a == ops) backend_.issued()->issue_all();
    }
    EXPECT_FALSE(backend_.issued()->is_holding());
    backend_.wait_all();
    return told_;
  };
  const std::string first = "1 2 3 4 5 6 7 8 9 ", second = "11 12 13 14 15 16 17 18 19 20 ";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(issued(9), first + ". " + second + "| ");
  EXPECT_EQ(backend_.num_records(), 2);
  EXPECT_EQ(issued(9), "[" + first + "] . [" + second + "] | ");
  EXPECT_EQ(issued(3), "1 2 3 . [" + second + "] | ");
}

TEST_F(ReplayedTest, ALongRunIsSeveralRecords) {
  std::string last;
  for (int time = 0; time < 3; ++time) {
    told_.clear();
    for (size_t i = 0; i < 2 * Replayed::kMostOps + 7; ++i) backend_.run(Axpby{.x = x_, .out = y_, .a = 5});
    backend_.wait_all();
  }
  std::string chunk = "[";
  for (size_t i = 0; i < Replayed::kMostOps; ++i) chunk += "5 ";
  EXPECT_EQ(told_, chunk + "] " + chunk + "] 5 5 5 5 5 5 5 | ");
}

TEST_F(ReplayedTest, FewOpsAreNotWorthIt) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(told_of({1, 2, 3, 4, 5, 6, 7}), "1 2 3 4 5 6 7 | ");
  EXPECT_EQ(device_->num_recorded, 0);
}

// And what there is goes on, chunk for chunk, behind a chunk that has none.
TEST_F(ReplayedTest, ThereAreNotMoreRecordsThanThereMayBe) {
  std::vector<Tensor> to;
  for (size_t i = 0; i <= Replayed::kMostRecords; ++i) to.push_back(operands_.act(1, 8));
  const Tensor x = operands_.act(1, 8);
  const auto told_of_chunk = [&](size_t i, size_t ops) {
    told_.clear();
    for (size_t j = 0; j < ops; ++j) backend_.run(Axpby{.x = x, .out = to[i], .a = 1});
    return told_;
  };
  for (int time = 0; time < 2; ++time) {
    for (size_t i = 0; i < to.size(); ++i) {
      told_of_chunk(i, 8);
      backend_.wait_all();
    }
  }
  EXPECT_EQ(size_t(device_->num_recorded), Replayed::kMostRecords);
  std::string run;
  for (size_t i = 0; i < Replayed::kMostOps; ++i) run += "1 ";
  EXPECT_EQ(told_of_chunk(Replayed::kMostRecords, Replayed::kMostOps), run);
  EXPECT_EQ(told_of_chunk(0, 8), "[1 1 1 1 1 1 1 1 ] ");  // without a wait between
}

// As an optimizer's, with the number of the step in it.
TEST_F(ReplayedTest, OpsThatAreOtherEachTimeAreNeverRecorded) {
  for (double i = 0; i < 50; ++i) told_of({i, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(device_->num_recorded, 0);
}

TEST_F(ReplayedTest, SpansBelongToAnOpAndSamplesWhereTheyAreUsed) {
  const std::string one = "attention:1 attention:1 attention:1 attention:1 ";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(told_of_attention(i, 0, 3), one + one + "| ");
  EXPECT_EQ(told_of_attention(7, 0, 3), "[" + one + one + "] | ");
  EXPECT_EQ(told_of_attention(7, 0, 2), one + one + "| ");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(told_of_attention(i, 0.5, 3), one + one + "| ");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(told_of_attention(1, 0.5, 3), one + one + "| ");
  EXPECT_EQ(told_of_attention(1, 0.5, 3), "[" + one + one + "] | ");
}

TEST_F(ReplayedTest, ADeviceThatCannotIsAskedOnceAndSaysWhy) {
  device_->why_none = "it cannot";
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(told_of({1, 2, 3, 4, 5, 6, 7, 8}), "1 2 3 4 5 6 7 8 | ");
    EXPECT_EQ(told_of({8, 2, 3, 4, 5, 6, 7, 8}, &z_), "8 2 3 4 5 6 7 8 | ");
  }
  EXPECT_EQ(device_->num_recorded, 1);
  EXPECT_EQ(warned_, "it cannot");
}

TEST_F(ReplayedTest, ADeviceThatCannotYetIsAskedAgain) {
  device_->not_yet = true;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(told_of({1, 2, 3, 4, 5, 6, 7, 8}), "1 2 3 4 5 6 7 8 | ");
  EXPECT_EQ(device_->num_recorded, 2);
  device_->not_yet = false;
  told_of({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(told_of({1, 2, 3, 4, 5, 6, 7, 8}), "[1 2 3 4 5 6 7 8 ] | ");
  EXPECT_EQ(warned_, "");
}

}  // namespace
}  // namespace weft
