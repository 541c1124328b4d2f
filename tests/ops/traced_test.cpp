#include "weft/ops/traced.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ops/cases.h"
#include "support.h"

namespace weft {
namespace {

// Of 1 ns, unless told otherwise.
struct FakeClock {
  int64_t now = 1000;
  Traced::Clock clock() {
    return [this] { return now++; };
  }
};

struct Given {
  testing::Operands o{DType::f64, 0};
  RefBackend ref{1};
  FakeClock time;
  Add add{.x = o.act(2, 3), .y = o.act(2, 3), .out = o.act_out(2, 3)};
  Matmul product{.a = o.act(2, 3), .b = o.weight({3, 4}), .out = o.act_out(2, 4)};
};

TEST(Traced, RecordsRegionsOpsTimesAndWork) {
  Given g;
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

TEST(Traced, KeepsTheLastEventsInMemoryOfItsOwn) {
  Given g;
  Traced traced(g.ref, g.time.clock(), 3);
  for (int i = 0; i < 2; ++i) traced.run(g.add);
  EXPECT_EQ(traced.events().size(), 2u);
  EXPECT_EQ(traced.num_dropped(), 0);
  for (int i = 0; i < 3; ++i) traced.run(g.add);
  const auto events = traced.events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(traced.num_dropped(), 2);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(events[i].start_ns, 1004 + 2 * int64_t(i));
  traced.clear();
  EXPECT_TRUE(traced.events().empty());
  EXPECT_EQ(traced.num_dropped(), 0);
}

nlohmann::json slice_named(const nlohmann::json& trace, const std::string& name) {
  for (const auto& e : trace["traceEvents"])
    if (e["name"] == name) return e;
  throw std::runtime_error("no slice " + name);
}

TEST(Traced, AChromeTraceHasOpsWithinTheirRegions) {
  Given g;
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
  EXPECT_EQ(product["args"]["region"], "a \"block\"/attn");
  EXPECT_EQ(block["ts"], 0.0);
  EXPECT_DOUBLE_EQ(block["dur"].get<double>(), 2.001);
  EXPECT_EQ(attn["ts"], 2.0);
  EXPECT_DOUBLE_EQ(attn["dur"].get<double>(), 0.001);
  for (const auto& e : trace["traceEvents"]) EXPECT_EQ(e["ph"], "X");
}

TEST(Traced, SaysWhereATraceCannotBeWritten) {
  const testing::TempDir dir;
  try {
    write_chrome_trace(dir / "absent/trace.json", {});
    FAIL() << "written";
  } catch (const FileError& e) { EXPECT_EQ(std::string(e.what()).find((dir / "absent/trace.json").string()), 0u); }
}

}  // namespace
}  // namespace weft
