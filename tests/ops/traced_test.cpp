#include "weft/ops/traced.h"

#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "ops/operands.h"
#include "support.h"

namespace weft {
namespace {

// Advances by 1 ns a call, unless told otherwise.
struct FakeClock {
  int64_t now = 1000;
  Traced::Clock clock() {
    return [this] { return now++; };
  }
};

struct TracedOps {
  testing::Operands o{DType::f64, 0};
  RefBackend ref{1};
  FakeClock time;
  Add add{.x = o.act(2, 3), .y = o.act(2, 3), .out = o.act_out(2, 3)};
  Matmul product{.a = o.act(2, 3), .b = o.weight({3, 4}), .out = o.act_out(2, 4)};
};

TEST(Traced, RecordsRegionsOpsTimesAndWork) {
  TracedOps g;
  Traced traced(g.ref, g.time.clock());
  traced.run(g.add);
  {
    Region outer(traced, "blocks.0");
    Region inner(traced, "attn");
    traced.run(g.product);
  }
  const auto events = traced.events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].region, "");
  EXPECT_EQ(events[0].op, "add");
  EXPECT_EQ(events[0].start_ns, 1000);
  EXPECT_EQ(events[0].end_ns, 1001);
  EXPECT_EQ(events[0].cost.bytes_read, 2 * 2 * 3 * 8);
  EXPECT_EQ(events[1].region, "blocks.0/attn");
  EXPECT_EQ(events[1].op, "matmul");
  EXPECT_EQ(events[1].cost.flops, 2 * 2 * 3 * 4);
  EXPECT_EQ(events[1].cost.bytes_written, 2 * 4 * 8);
  EXPECT_EQ(traced.products().size(), 1u);
  EXPECT_FALSE(std::isnan(g.product.out.as<double>()[0]));  // it ran
}

// What the library's products are compared with: those of the experts that have rows.
TEST(Traced, TakesGroupedProductsForThoseOfTheirGroups) {
  TracedOps g;
  const Tensor offsets = g.o.index(std::vector<int32_t>{0, 2, 2, 5}, {});
  const GroupedMatmul op{.x = g.o.act(6, 4), .w = g.o.act(9, 4), .offsets = offsets, .out = g.o.act_out(6, 3)};
  const GroupedWeightGrad grad{.dy = g.o.act(6, 3), .x = op.x, .offsets = offsets, .dw = g.o.act_out(9, 4)};
  Traced traced(g.ref, g.time.clock());
  traced.run(op);
  traced.run(grad);
  std::vector<std::string> shapes;
  for (const Matmul& product : traced.products()) shapes.push_back(to_string(shape_of(product)));
  EXPECT_EQ(shapes, (std::vector<std::string>{"2 x 3 x 4 nt", "3 x 3 x 4 nt", "3 x 4 x 2 tn", "3 x 4 x 3 tn"}));
  EXPECT_EQ(traced.products()[1].a.data, op.x.as<double>() + 8);
  EXPECT_EQ(traced.products()[3].out.data, grad.dw.as<double>() + 24);
}

TEST(Traced, KeepsTheLastEventsInMemoryOfItsOwn) {
  TracedOps g;
  Traced traced(g.ref, g.time.clock(), 3);
  for (int i = 0; i < 2; ++i) traced.run(g.add);
  EXPECT_EQ(traced.events().size(), 2u);
  EXPECT_EQ(traced.num_dropped(), 0);
  for (int i = 0; i < 3; ++i) traced.run(g.add);
  const auto events = traced.events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(traced.num_dropped(), 2);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(events[i].start_ns, 1004 + 2 * int64_t(i));
  traced.wait_clear();
  EXPECT_TRUE(traced.events().empty());
  EXPECT_EQ(traced.num_dropped(), 0);
}

// A fake asynchronous device: a product takes 7 ns, other ops 2 ns, with 1 ns between two.
class TracedDevice final : public Backend, private IssuedOps {
 public:
  void run(const AnyOp& op) override { now_ += op.as<Matmul>() != nullptr ? 7 : 2; }
  void enter(std::string_view) override {}
  void leave() override {}
  void wait_all() override {
    ++num_waits;
    known_ = times_.size();
  }
  IssuedOps* issued() override { return this; }
  bool all_taken() const { return taken_.size() == times_.size(); }
  int num_waits = 0;

 private:
  DeviceQueue* issue_all() override { return nullptr; }
  void call_before_waits(std::function<void()>) override {}
  Stamp stamp() override {
    times_.push_back(now_++);
    return Stamp(times_.size());
  }
  int64_t take_time_ns(Stamp stamp) override {
    if (size_t(stamp) > known_ || !taken_.insert(stamp).second) throw std::runtime_error("unknown, or taken before");
    return times_[size_t(stamp) - 1];
  }

  int64_t now_ = 500;
  std::vector<int64_t> times_;
  size_t known_ = 0;
  std::set<Stamp> taken_;
};

TEST(Traced, ALateDeviceTellsItsOwnTimesAndIsNotWaitedFor) {
  TracedOps g;
  TracedDevice device;
  Traced traced(device, g.time.clock());
  {
    Region region(traced, "blocks.0");
    traced.run(g.product);
    traced.run(g.add);
    device.wait_all();  // by somebody else
  }
  traced.run(g.add);
  EXPECT_EQ(device.num_waits, 1);
  EXPECT_THROW(traced.events(), CheckFailure);
  traced.wait_all();
  EXPECT_EQ(device.num_waits, 2);
  EXPECT_EQ(g.time.now, 1000);  // nobody looked at the host's clock
  const auto events = traced.events();
  ASSERT_EQ(events.size(), 3u);
  const std::vector<std::array<int64_t, 2>> expected{{500, 508}, {509, 512}, {513, 516}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(events[i].start_ns, expected[i][0]) << i;
    EXPECT_EQ(events[i].end_ns, expected[i][1]) << i;
    EXPECT_EQ(events[i].op, i == 0 ? "matmul" : "add");
    EXPECT_EQ(events[i].region, i < 2 ? "blocks.0" : "");
  }
  EXPECT_EQ(to_string(events[0].product), "2 x 4 x 3 nn");
  EXPECT_TRUE(device.all_taken());
}

TEST(Traced, KeepsTheLastEventsOfALateDeviceToo) {
  TracedOps g;
  TracedDevice device;
  Traced traced(device, g.time.clock(), 3);
  for (int i = 0; i < 8; ++i) traced.run(g.add);
  EXPECT_EQ(device.num_waits, 2);  // no event gives way before its times are known
  traced.wait_all();
  const auto events = traced.events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(traced.num_dropped(), 5);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(events[i].start_ns, 500 + 4 * (5 + int64_t(i)));
  traced.run(g.add);
  traced.wait_clear();
  EXPECT_TRUE(traced.events().empty());
  EXPECT_TRUE(device.all_taken());
}

nlohmann::json slice_named(const nlohmann::json& trace, const std::string& name) {
  for (const auto& e : trace["traceEvents"])
    if (e["name"] == name) return e;
  throw std::runtime_error("no slice " + name);
}

TEST(Traced, AChromeTraceHasOpsWithinTheirRegions) {
  TracedOps g;
  Traced traced(g.ref, g.time.clock());
  {
    Region outer(traced, "a \"block\"");
    traced.run(g.add);
    g.time.now = 3000;
    Region inner(traced, "attn");
    traced.run(g.product);
  }
  const testing::TempDir dir;
  write_chrome_trace(dir / "trace.json", traced.events());
  const auto trace = nlohmann::json::parse(testing::slurp(dir / "trace.json"));
  ASSERT_EQ(trace["traceEvents"].size(), 4u);
  const auto add = slice_named(trace, "add"), product = slice_named(trace, "matmul"),
             block = slice_named(trace, "a \"block\""), attn = slice_named(trace, "attn");
  EXPECT_EQ(add["ts"], 0.0);
  EXPECT_EQ(product["ts"], 2.0);  // microseconds
  EXPECT_DOUBLE_EQ(product["dur"].get<double>(), 0.001);
  EXPECT_EQ(product["args"]["flops"], 48.0);
  EXPECT_EQ(product["args"]["shape"], "2 x 4 x 3 nn");
  EXPECT_EQ(product["args"]["region"], "a \"block\"/attn");
  EXPECT_EQ(block["ts"], 0.0);
  EXPECT_DOUBLE_EQ(block["dur"].get<double>(), 2.001);
  EXPECT_EQ(attn["ts"], 2.0);
  EXPECT_DOUBLE_EQ(attn["dur"].get<double>(), 0.001);
  for (const auto& e : trace["traceEvents"]) EXPECT_EQ(e["ph"], "X");
}

TEST(Traced, SaysWhereATraceCannotBeWritten) {
  const testing::TempDir dir;
  const std::filesystem::path file = dir / "absent/trace.json";
  EXPECT_EQ(testing::error_of<FileError>([&] { write_chrome_trace(file, {}); }).find(file.string()), 0u);
}

}  // namespace
}  // namespace weft
