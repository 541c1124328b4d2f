// The case list itself, on the reference backend: in fp64 against its own twins, and by the rules.
#include <gtest/gtest.h>

#include <set>

#include "ops/cases.h"
#include "weft/ops/checked.h"
#include "weft/ops/dry/dry_backend.h"

namespace weft {
namespace {

using testing::op_cases;
using testing::OpCase;

TEST(RefBackendSlow, WritesItsOutputsAndNothingElse) {
  RefBackend inner(1);
  Checked backend(inner, {});
  for (const OpCase& c : op_cases(DType::f64)) {
    auto trial = c.make();
    trial->run(backend);
    trial->run_exact(inner);
    EXPECT_EQ(trial->difference(), "") << c.name;
    EXPECT_EQ(trial->trespass(), "") << c.name;
  }
}

TEST(RefBackendSlow, GivesTheSameBitsOnAnyNumberOfThreads) {
  RefBackend one(1), three(3);
  for (const OpCase& c : op_cases(DType::f64)) {
    auto trial = c.make();
    trial->run(one);
    const auto bits = trial->outputs();
    trial->reset();
    trial->run(three);
    EXPECT_EQ(trial->outputs(), bits) << c.name;
  }
}

TEST(CasesSlow, OfEveryDtypePassTheRulesUnderNamesOfTheirOwn) {
  const WorkspaceModel none;
  DryBackend dry(none);
  std::set<std::string> names;
  for (DType t : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    for (const OpCase& c : op_cases(t)) {
      EXPECT_TRUE(names.insert(c.name).second) << c.name;
      EXPECT_NO_THROW(c.make()->run(dry)) << c.name;
    }
  }
}

// Their fp64 twins are defined: a NaN would pass for a NaN.
TEST(CasesSlow, HaveFiniteAnswers) {
  RefBackend inner(1);
  Checked ref(inner, {.finite = true});
  for (DType t : {DType::f32, DType::bf16, DType::f16}) {
    for (const OpCase& c : op_cases(t)) EXPECT_NO_THROW(c.make()->run_exact(ref)) << c.name;
  }
}

TEST(CasesSlow, SeeAnOpThatDoesNothing) {
  RefBackend ref(1);
  for (const OpCase& c : op_cases(DType::f64)) {
    auto trial = c.make();
    trial->run_exact(ref);
    EXPECT_NE(trial->difference(), "") << c.name << ": an op that did nothing passes";
  }
}

}  // namespace
}  // namespace weft
