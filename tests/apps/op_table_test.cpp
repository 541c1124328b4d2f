#include "weft/apps/op_table.h"

#include <gtest/gtest.h>
#include "apps/program.h"
#include "weft/apps/step_floor.h"

namespace weft {
namespace {

constexpr ProductShape kShape{.m = 64, .n = 32, .k = 16, .trans_b = true};
const OpCost kProductCost{.flops = 2.0 * 64 * 32 * 16, .bytes_read = 1000, .bytes_written = 24};

// 1 ms to 11 ms: two products, a norm that runs beside the second, and an op before the step began.
const std::vector<TraceEvent> kEvents{
    {.region = "", .op = "copy", .start_ns = 500'000, .end_ns = 1'500'000, .cost = {0, 4'000'000, 1'000'000}},
    {.region = "", .op = "matmul", .start_ns = 2'000'000, .end_ns = 4'000'000, .cost = kProductCost, .product = kShape},
    {.region = "", .op = "matmul", .start_ns = 5'000'000, .end_ns = 7'000'000, .cost = kProductCost, .product = kShape},
    {.region = "", .op = "norm", .start_ns = 6'000'000, .end_ns = 9'000'000, .cost = {0, 6'000'000, 3'000'000}},
};

TEST(OpTable, AddsUpOpsByKindAndShapeAndSaysWhenNoneRan) {
  const StepParts parts = parts_of_step(kEvents, 1'000'000, 11'000'000);
  ASSERT_EQ(parts.ops.size(), 3u);
  EXPECT_EQ(parts.ops[0].op, "matmul");
  EXPECT_EQ(parts.ops[0].product, kShape);
  EXPECT_EQ(parts.ops[0].count, 2);
  EXPECT_DOUBLE_EQ(parts.ops[0].s, 4e-3);
  EXPECT_DOUBLE_EQ(parts.ops[0].cost.flops, 4.0 * 64 * 32 * 16);
  EXPECT_EQ(parts.ops[1].op, "norm");
  EXPECT_EQ(parts.ops[2].op, "copy");
  EXPECT_DOUBLE_EQ(parts.step_s, 10e-3);
  EXPECT_DOUBLE_EQ(parts.idle_s, 10e-3 - (0.5e-3 + 2e-3 + 4e-3));
}

TEST(OpTable, ProductsOfOtherShapesAreOtherLines) {
  std::vector<TraceEvent> events = kEvents;
  events[2].product.trans_a = true;
  const StepParts parts = parts_of_step(events, 1'000'000, 11'000'000);
  EXPECT_EQ(parts.ops.size(), 4u);
  const std::string text = to_table(parts, {});
  EXPECT_SAYS(text, "64 x 32 x 16 nt");
  EXPECT_SAYS(text, "64 x 32 x 16 tt");
  EXPECT_SAYS(text, "all 2 shapes                       2      4.000    40.0%");
}

TEST(OpTable, ComparesProductsWithTheRateAndOthersWithTheBandwidth) {
  const double rate = 4 * kProductCost.flops / 4e-3, bandwidth = 6e9;
  const std::string text = to_table(parts_of_step(kEvents, 1'000'000, 11'000'000), {rate, bandwidth});
  EXPECT_SAYS(text,
              "matmul               64 x 32 x 16 nt                    2      4.000    40.0%       0.00        50.0%");
  EXPECT_SAYS(text, "norm                                                    1      3.000    30.0%");
  EXPECT_SAYS(text, "      3.00        50.0%\n");  // 9 MB in 3 ms
  EXPECT_SAYS(text, "      5.00        83.3%\n");  // 5 MB in 1 ms
  EXPECT_SAYS(text, "idle: no op ran                                                3.500    35.0%\n");
  EXPECT_SAYS(text, "the step                                                      10.000   100.0%\n");
  EXPECT_EQ(text.find("all "), std::string::npos);
}

TEST(OpTable, IsEmptyOfNothing) {
  const StepParts parts = parts_of_step({}, 5, 5);
  EXPECT_EQ(parts.step_s, 0);
  EXPECT_EQ(parts.idle_s, 0);
  EXPECT_SAYS(to_table(parts, {}), "the step                                                       0.000     0.0%\n");
}

// Products by the rate of large ones, attention likewise, all others by their bytes.
TEST(StepFloor, CountsEveryOpAtTheMachinesRates) {
  std::vector<TraceEvent> events = kEvents;
  events.push_back({.region = "", .op = "attention", .start_ns = 9'000'000, .end_ns = 10'000'000, .cost = {3e6, 8, 8}});
  const MachineRates rates{.flops = 1e9, .bytes = 14e9};
  const StepFloor floor = floor_of(parts_of_step(events, 1'000'000, 11'000'000), rates);
  EXPECT_DOUBLE_EQ(floor.products.floor_s, 2 * kProductCost.flops / 1e9);
  EXPECT_DOUBLE_EQ(floor.products.step_s, 4e-3);
  EXPECT_DOUBLE_EQ(floor.attention.floor_s, 3e-3);
  EXPECT_DOUBLE_EQ(floor.attention.step_s, 1e-3);
  EXPECT_DOUBLE_EQ(floor.others.floor_s, 1e-3);  // 5 and 9 MB
  EXPECT_DOUBLE_EQ(floor.others.step_s, 4e-3);
  EXPECT_DOUBLE_EQ(floor.total(), floor.products.floor_s + 4e-3);
  const std::string text = to_table(floor, 2 * floor.total(), rates);
  EXPECT_SAYS(text, "\nattention                    3.00       1.00    0.333\n");
  EXPECT_SAYS(text, "\nall other ops                1.00       4.00    4.000   14.0 GB/s\n");
  EXPECT_SAYS(text, "    2.000\n");
}

TEST(StepFloor, OfNoOpIsNothing) {
  const MachineRates rates{.flops = 1e9, .bytes = 1e9};
  const StepFloor floor = floor_of(parts_of_step({}, 5, 5), rates);
  EXPECT_EQ(floor.total(), 0);
  EXPECT_SAYS(to_table(floor, 1e-3, rates), "\nwhole step                   0.00       1.00        -\n");
}

}  // namespace
}  // namespace weft
