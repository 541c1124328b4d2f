// The CPU backend on every case: equal to the reference, the same bits for any number of threads, within its workspace,
// on every kind of CPU that this one can stand for.
#include "weft/ops/cpu/cpu_backend.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <thread>

#include "ops/machine_cases.h"
#include "train/late_backend.h"
#include "weft/apps/backends.h"

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

// Operands on the heap, where the address sanitizer sees what goes beyond them.
Machine cpu_machine() {
  Recipe recipe;
  recipe.run.threads = 2;
  Machine machine = machine_for(recipe);
  machine.memory = std::make_shared<testing::HeapMemory>();
  return machine;
}

// Restores the kinds of CPU that may be chosen.
class CpuBackendOn : public ::testing::TestWithParam<int64_t> {
 protected:
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

void expect_equals_reference() {
  const Machine machine = cpu_machine();
  for (DType t : {DType::f32, DType::bf16, DType::f16})
    for (const OpCase& c : op_cases(t)) testing::expect_equals_reference(machine, c);
}

TEST(CpuBackend, EqualsTheReference) { expect_equals_reference(); }

class CpuBackendOnSlow : public CpuBackendOn {};

TEST_P(CpuBackendOnSlow, EqualsTheReference) {
  if ((hwy::SupportedTargets() & GetParam()) == 0) GTEST_SKIP() << "not on this CPU";
  hwy::SetSupportedTargetsForTest(GetParam());
  expect_equals_reference();
}

// What the cases of a GPU's tests rely on: operands are copied there and back, and the host touches none there.
TEST(OpCases, RunWhereTheHostDoesNotReachTheirOperands) {
  const Machine machine = testing::apart(cpu_machine());
  const auto cases = op_cases(DType::bf16);
  for (size_t i = 0; i < cases.size(); i += 20) {
    testing::expect_equals_reference(machine, cases[i]);
    testing::expect_gives_the_same_bits_again(machine, cases[i]);
    testing::expect_gives_the_same_bits_replayed(machine, cases[i]);
  }
}

// Every f16, and floats around every boundary between two of them.
TEST_P(CpuBackendOn, ConvertsF16AsTheTypeDoes) {
  if ((hwy::SupportedTargets() & GetParam()) == 0) GTEST_SKIP() << "not on this CPU";
  hwy::SetSupportedTargetsForTest(GetParam());
  constexpr int64_t kAll = 1 << 16, kBesides = 3;
  std::vector<f16> halves(kAll), back(kAll * kBesides);
  std::vector<float> wide(kAll), around;
  for (int64_t i = 0; i < kAll; ++i) {
    halves[size_t(i)].bits = uint16_t(i);
    const uint32_t boundary = std::bit_cast<uint32_t>(float(halves[size_t(i)])) + 0x1000u;  // half way, where normal
    for (int64_t j = 0; j < kBesides; ++j) around.push_back(std::bit_cast<float>(boundary + uint32_t(j) - 1));
  }
  Arena workspace("workspace");
  CpuBackend backend({.threads = 1}, workspace);
  backend.run(Copy{.from = {halves.data(), DType::f16, {kAll}}, .to = {wide.data(), DType::f32, {kAll}}});
  backend.run(
      Copy{.from = {around.data(), DType::f32, {kAll * kBesides}}, .to = {back.data(), DType::f16, {kAll * kBesides}}});
  const auto same = [](float a, float b) { return a == b ? std::signbit(a) == std::signbit(b) : a != a && b != b; };
  for (size_t i = 0; i < wide.size(); ++i) ASSERT_TRUE(same(wide[i], float(halves[i]))) << i;
  for (size_t i = 0; i < back.size(); ++i) ASSERT_TRUE(same(float(back[i]), float(f16(around[i])))) << around[i];
}
// Those that are compiled (ops/cpu/simd_targets.h).
std::vector<int64_t> kinds_of_cpu() {
#if !HWY_ARCH_X86 || defined(WEFT_SANITIZES_THREADS)
  return {HWY_STATIC_TARGET};
#elif defined(WEFT_SANITIZES)
  return {HWY_STATIC_TARGET, HWY_AVX2, HWY_AVX3};
#else
  return {HWY_STATIC_TARGET, HWY_SSE4, HWY_AVX2, HWY_AVX3};
#endif
}
std::string name_of_kind(const ::testing::TestParamInfo<int64_t>& info) { return hwy::TargetName(info.param); }
INSTANTIATE_TEST_SUITE_P(Kinds, CpuBackendOn, ::testing::ValuesIn(kinds_of_cpu()), name_of_kind);
INSTANTIATE_TEST_SUITE_P(Kinds, CpuBackendOnSlow, ::testing::ValuesIn(kinds_of_cpu()), name_of_kind);

TEST(CpuBackendSlow, GivesTheSameBitsAgainAndOnAnyNumberOfThreads) {
  for (DType t : {DType::f32, DType::bf16, DType::f16}) {
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

// Each thread keeps the exponentials of a row in a room of its own where gradients have 16 bits.
TEST(CpuWorkspace, HasARoomForEachThreadsExponentials) {
  const Tensor logits(nullptr, DType::f32, {8, 100}), dlogits(nullptr, DType::bf16, {8, 100}),
      targets(nullptr, DType::i32, {8}), weights(nullptr, DType::f32, {8});
  const CrossEntropy op{.logits = logits, .targets = targets, .weights = weights, .nll = weights, .dlogits = dlogits};
  EXPECT_GE(CpuWorkspace({.threads = 1}).of(op), 100 * 4);
  EXPECT_GE(CpuWorkspace({.threads = 3}).of(op), 3 * 100 * 4);
}

// Ranks that are threads plan their steps by one workspace model, at the same time; in 16 bits it keeps oneDNN's
// primitives.
TEST(CpuWorkspace, AnswersManyRanksAtOnce) {
  constexpr int64_t kShapes = 40;
  const auto bytes = [](const CpuWorkspace& model, int64_t n) {
    const Tensor a(nullptr, DType::bf16, {n, 16}), b(nullptr, DType::bf16, {16, 8}), out(nullptr, DType::bf16, {n, 8});
    return model.of(Matmul{.a = a, .b = b, .out = out});
  };
  const CpuSpec spec{.threads = 1};
  const CpuWorkspace shared(spec), own(spec);
  std::vector<std::vector<int64_t>> answers(4);
  std::vector<std::thread> ranks;
  for (auto& mine : answers)
    ranks.emplace_back([&bytes, &shared, &mine] {
      for (int64_t n = 1; n <= kShapes; ++n) mine.push_back(bytes(shared, n));
    });
  for (std::thread& rank : ranks) rank.join();
  for (int64_t n = 1; n <= kShapes; ++n)
    for (const auto& mine : answers) EXPECT_EQ(mine[size_t(n - 1)], bytes(own, n)) << n;
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
