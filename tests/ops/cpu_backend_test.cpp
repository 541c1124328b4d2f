// The CPU backend on every case: equal to the reference, the same bits for any number of threads, within its workspace,
// on every kind of CPU that this one can stand for.
#include "weft/ops/cpu/cpu_backend.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "ops/cases.h"

namespace weft {
namespace {

using testing::op_cases;
using testing::OpCase;
using testing::Trial;

// A backend whose workspace is what the model of a dry run planned for one trial, to the byte.
struct Planned {
  Planned(const Trial& trial, CpuSpec spec)
      : workspace("workspace", trial.workspace_bytes(CpuWorkspace(spec))), backend(spec, workspace) {}
  Arena workspace;
  CpuBackend backend;
};

void expect_equals_reference(const OpCase& c, int threads) {
  auto trial = c.make();
  Planned cpu(*trial, {.threads = threads});
  RefBackend ref(1);
  trial->run(cpu.backend);
  trial->run_exact(ref);
  EXPECT_EQ(trial->difference(), "") << c.name;
  EXPECT_EQ(trial->trespass(), "") << c.name;
  EXPECT_EQ(cpu.workspace.used(), 0) << c.name;
  EXPECT_LT(cpu.workspace.capacity() - cpu.workspace.peak(), 1) << c.name << ": planned more than was used";
}

// Restores the kinds of CPU that may be chosen.
class CpuBackendOn : public ::testing::TestWithParam<int64_t> {
 protected:
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(CpuBackendOn, EqualsTheReference) {
  if ((hwy::SupportedTargets() & GetParam()) == 0) GTEST_SKIP() << "not on this CPU";
  hwy::SetSupportedTargetsForTest(GetParam());
  for (DType t : {DType::f32, DType::bf16})
    for (const OpCase& c : op_cases(t)) expect_equals_reference(c, 2);
}
std::vector<int64_t> kinds_of_cpu() {
#if HWY_ARCH_X86
  return {HWY_STATIC_TARGET, HWY_SSE4, HWY_AVX2, HWY_AVX3};
#else
  return {HWY_STATIC_TARGET};
#endif
}
INSTANTIATE_TEST_SUITE_P(Kinds, CpuBackendOn, ::testing::ValuesIn(kinds_of_cpu()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

TEST(CpuBackend, GivesTheSameBitsAgainAndOnAnyNumberOfThreads) {
  for (DType t : {DType::f32, DType::bf16}) {
    for (const OpCase& c : op_cases(t)) {
      auto trial = c.make();
      std::vector<std::byte> bits;
      for (int threads : {1, 1, 2, 3, 7}) {
        Planned cpu(*trial, {.threads = threads, .numerics = Numerics::invariant});
        trial->reset();
        trial->run(cpu.backend);
        if (bits.empty()) bits = trial->outputs();
        EXPECT_EQ(trial->outputs(), bits) << c.name << " on " << threads;
      }
    }
  }
}

TEST(CpuBackend, RefusesToComputeInOtherTypes) {
  Arena workspace("workspace");
  CpuBackend backend({.threads = 2}, workspace);
  double x[4] = {}, y[4] = {};
  const Tensor tx(x, DType::f64, {2, 2}), ty(y, DType::f64, {2, 2});
  EXPECT_THROW(backend.run(Copy{.from = tx, .to = ty}), CheckFailure);
  EXPECT_THROW(backend.run(Add{.x = tx, .y = tx, .out = ty}), CheckFailure);
}

}  // namespace
}  // namespace weft
