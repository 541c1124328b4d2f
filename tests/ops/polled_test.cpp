#include "weft/ops/polled.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "ops/operands.h"
#include "support.h"

namespace weft {
namespace {

// Says when it runs, and may fail.
class Telling final : public Backend, private IssuedOps {
 public:
  explicit Telling(std::string& told) : told_(told) {}
  void enter(std::string_view) override {}
  void leave() override {}
  void wait_all() override {}
  void run(const AnyOp&) override {
    told_ += "op ";
    holds = holds_next;
    if (fails) throw std::runtime_error("the op");
  }
  IssuedOps* issued() override { return this; }
  bool fails = false, holds = false, holds_next = false;

 private:
  bool is_holding() const override { return holds; }
  DeviceQueue* issue_all() override { return nullptr; }
  void call_before_waits(std::function<void()>) override {}
  Stamp stamp() override { return Stamp::none; }
  int64_t take_time_ns(Stamp) override { return 0; }
  std::string& told_;
};

struct Case {
  std::string told;
  Telling inner{told};
  testing::Operands operands{DType::f32, 0};
  GatedUnit op{.u = operands.act(3, 8), .a = operands.act(3, 4)};
  Polled::Call lend = [this] { told += "lend "; };
  Polled::Call poll = [this] { told += "poll "; };
};

TEST(Polled, PollsAfterAnOpAndLendsBeforeItWhereThatIsWanted) {
  Case c;
  Polled(c.inner, nullptr, c.poll).run(c.op);
  EXPECT_EQ(c.told, "op poll ");
  Polled(c.inner, c.lend, c.poll).run(c.op);
  EXPECT_EQ(c.told, "op poll lend op poll ");
}

// A poll that takes long would keep the device waiting for what is held.
TEST(Polled, DoesNotPollWhileOpsAreHeld) {
  Case c;
  Polled polled(c.inner, nullptr, c.poll);
  c.inner.holds_next = true;
  polled.run(c.op);
  EXPECT_EQ(c.told, "op ");
  c.inner.holds_next = false;
  polled.run(c.op);
  EXPECT_EQ(c.told, "op op poll ");
}

// The mesh is taken back, and the op's error is the one thrown.
TEST(Polled, TakesBackWhatItLentWhereTheOpFails) {
  Case c;
  c.inner.fails = true;
  const auto failing_poll = [&] {
    c.poll();
    throw std::runtime_error("the poll");
  };
  Polled polled(c.inner, c.lend, failing_poll);
  EXPECT_EQ(testing::error_of([&] { polled.run(c.op); }), "the op");
  EXPECT_EQ(c.told, "lend op poll ");
}

// The mesh is taken back before any other call.
TEST(Polled, LendsNothingWhileOpsAreHeld) {
  Case c;
  Polled polled(c.inner, c.lend, c.poll);
  c.inner.holds_next = true;
  polled.run(c.op);  // held, while it was lent
  polled.run(c.op);
  c.inner.holds_next = false;
  polled.run(c.op);
  polled.run(c.op);
  EXPECT_EQ(c.told, "lend op poll op op poll lend op poll ");
}

}  // namespace
}  // namespace weft
