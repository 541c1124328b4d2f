#include "train/golden.h"
#include "train/late_backend.h"
#include "weft/apps/backends.h"

namespace weft {
namespace {

Machine cpu(const std::string& numerics, int64_t threads) {
  Recipe recipe;
  recipe.train.numerics = numerics;
  recipe.run.threads = threads;
  return machine_for(recipe);
}
// The bounds that the traces' own distance from fp64 allows (tests/golden/README.md).
constexpr testing::GoldenTolerance kF32Bound{.loss = 1e-6, .grad_norm = 2e-5, .tensor_norm = 1e-4};

TEST(GoldenCpu, EveryDenseCaseInF32) {
  for (const std::string& name : testing::kGoldenCases)
    testing::expect_golden(name, cpu("fast", 2), {"train.micro_batch_size=8"}, kF32Bound);
}

// The host looks at nothing, and writes over nothing, before a device is done with it.
TEST(GoldenCpuSlow, EveryDenseCaseOnADeviceThatIsLate) {
  for (const std::string& name : testing::kGoldenCases)
    testing::expect_golden(name, testing::late(cpu("fast", 2)),
                           {"train.micro_batch_size=2", "parallel.recompute=selective"}, kF32Bound);
}

TEST(GoldenCpuSlow, EveryDenseCaseInInvariantNumericsRecomputedAndAccumulated) {
  for (const std::string& name : testing::kGoldenCases) {
    testing::expect_golden(name, cpu("invariant", 1),
                           {"train.numerics=invariant", "train.micro_batch_size=1", "parallel.recompute=full"},
                           kF32Bound);
    testing::expect_golden(
        name, cpu("fast", 3),
        {"train.micro_batch_size=2", "parallel.recompute=selective", "parallel.pipeline_schedule=zb_h1"}, kF32Bound);
  }
}

// bf16 has eight bits: activations and weights are each rounded to 2^-9, so a loss of a few nats moves by about 1e-3.
TEST(GoldenCpuSlow, Bf16FollowsTheF32Run) {
  for (const std::string& name : testing::kGoldenCases) {
    testing::expect_golden(name, cpu("fast", 2), {"train.precision=bf16", "train.micro_batch_size=4"},
                           {.loss = 2e-3, .grad_norm = 6e-2, .tensor_norm = 6e-2, .weights = 0});
  }
}

// fp16 has three bits more: measured at most 8e-5 of a loss, 3e-3 of a norm.
TEST(GoldenCpuSlow, Fp16FollowsTheF32Run) {
  for (const std::string& name : testing::kGoldenCases) {
    testing::expect_golden(name, cpu("fast", 2), {"train.precision=fp16", "train.micro_batch_size=4"},
                           {.loss = 2.5e-4, .grad_norm = 8e-3, .tensor_norm = 8e-3, .weights = 0});
  }
}

// One recipe, all the ways to compute it: the weights of the end are the same file.
TEST(GoldenCpuSlow, InvariantNumericsGiveTheSameBitsForAnyThreadsScheduleAndRecomputation) {
  const auto folder = std::filesystem::path(WEFT_SOURCE_DIR) / "tests/golden/qwen3-qknorm";
  std::string first;
  int64_t threads = 0;
  for (const char* recompute : {"none", "selective", "full"}) {
    for (const char* schedule : {"1f1b", "gpipe", "zb_h1"}) {
      testing::TempDir dir;
      testing::train(testing::golden_recipe(folder, dir / "run",
                                            {"train.numerics=invariant", "train.micro_batch_size=2",
                                             "train.train_iters=6", std::string("parallel.recompute=") + recompute,
                                             std::string("parallel.pipeline_schedule=") + schedule}),
                     cpu("invariant", 1 + threads++ % 3));
      const std::string weights = testing::slurp(dir / "run/checkpoints/step-6/model.safetensors");
      ASSERT_FALSE(weights.empty());
      if (first.empty()) first = weights;
      EXPECT_TRUE(weights == first) << recompute << " " << schedule;
    }
  }
}

}  // namespace
}  // namespace weft
