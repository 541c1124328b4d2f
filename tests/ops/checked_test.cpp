#include "weft/ops/checked.h"

#include <gtest/gtest.h>

#include <limits>

#include "ops/cases_pointwise.h"
#include "support.h"

namespace weft {
namespace {

using testing::Operands;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Spoils one element of an op's output.
class Faulty final : public Backend {
 public:
  void enter(std::string_view) override { ++regions; }
  void leave() override { --regions; }
  void wait_all() override { ++waits; }
  std::string field;
  int64_t row = 0, col = 0;
  double value = kInfinity;
  int regions = 0, regions_at_run = -1, waits = 0;

  void run(const AnyOp& op) override {
    regions_at_run = regions;
    for (const Field& f : op.fields())
      if (f.name == field) testing::store(f.tensor->data, f.tensor->dtype, row * f.tensor->row_stride + col, value);
  }
};

GatedUnit gated_unit(Operands& o) { return {.u = o.act(3, 8), .a = o.act(3, 4)}; }

template <class Op>
std::string complaint(Backend& backend, const Op& op) {
  return testing::error_of<NumericsError>([&] { backend.run(op); });
}

TEST(Checked, NamesRegionOpFieldAndElementOfTheFirstBadValue) {
  for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    Operands o(dtype, 2);
    Faulty faulty;
    faulty.field = "a", faulty.row = 2, faulty.col = 1;
    Checked checked(faulty, {.finite = true});
    const GatedUnit op = gated_unit(o);
    Region outer(checked, "blocks.3"), inner(checked, "mlp");
    EXPECT_EQ(complaint(checked, op), "blocks.3/mlp: gated_unit.a [2, 1] is inf");
    faulty.row = 1, faulty.col = 3, faulty.value = std::nan("");
    EXPECT_EQ(complaint(checked, op), "blocks.3/mlp: gated_unit.a [1, 3] is nan");
    EXPECT_EQ(faulty.regions_at_run, 2);
    EXPECT_GT(faulty.waits, 0);
  }
}

TEST(Checked, LooksAtOutputsAlone) {
  Operands o(DType::f32, 2);  // with NaNs between rows
  Faulty faulty;
  faulty.field = "u";
  Checked checked(faulty, {.finite = true});
  EXPECT_EQ(complaint(checked, gated_unit(o)), "");
  faulty.field = "x";  // read and written
  const Tensor positions = o.index(std::vector<int32_t>{0, 1, 2}, {});
  const Rope rope{.x = o.act(3, 8), .positions = positions, .table = o.stats(9, 4, testing::normal()).placed({})};
  EXPECT_EQ(complaint(checked, rope), "rope.x [0, 0] is inf");
}

TEST(Checked, LooksAtValuesOnlyIfAsked) {
  Operands o(DType::f32, 0);
  Faulty faulty;
  faulty.field = "a";
  Checked checked(faulty, {});
  EXPECT_EQ(complaint(checked, gated_unit(o)), "");
  EXPECT_EQ(faulty.waits, 0);
}

TEST(Checked, RunsNothingThatTheRulesRefuse) {
  Operands o(DType::f32, 0);
  Faulty faulty;
  Checked checked(faulty, {});
  GatedUnit op = gated_unit(o);
  op.u.place = tokens(Spmd::Partial);
  Region region(checked, "blocks.1.mlp");
  EXPECT_THROW(checked.run(op), PlacementError);
  op.u = o.act(3, 9);
  EXPECT_THROW(checked.run(op), CheckFailure);
  EXPECT_EQ(faulty.regions_at_run, -1);
}

TEST(Checked, GivesTheBitsOfTheBackendWithin) {
  RefBackend ref(1);
  Checked checked(ref, {.finite = true});
  testing::OpCases cases;
  testing::add_activations(cases, {DType::f64, 3});
  for (const auto& c : cases) {
    const auto trial = c.make();
    trial->run(ref);
    const auto bits = trial->outputs();
    trial->reset();
    trial->run(checked);
    EXPECT_EQ(trial->outputs(), bits) << c.name;
  }
}

}  // namespace
}  // namespace weft
