#include "train/golden.h"
#include "train/late_backend.h"
#include "weft/apps/backends.h"

namespace weft {
namespace {

Machine cpu(const std::string& numerics, int64_t threads) {
  Recipe recipe;
  recipe.train.numerics = choice_named<NumericsChoice>(numerics).value();
  recipe.run.threads = threads;
  return machine_for(recipe);
}

TEST(GoldenCpu, EveryDenseCaseInF32) {
  for (const std::string& name : testing::kGoldenCases)
    testing::expect_golden(name, cpu("fast", 2), {"train.micro_batch_size=8"}, testing::kGoldenF32);
}

// The host looks at nothing that is a device's own, and writes over nothing before the device is done with it.
TEST(GoldenCpuSlow, EveryDenseCaseOnADeviceThatIsLateAndApart) {
  for (const std::string& name : testing::kGoldenCases)
    testing::expect_golden(name, testing::apart(cpu("fast", 2)),
                           {"train.micro_batch_size=2", "parallel.recompute=selective"}, testing::kGoldenF32);
}

TEST(GoldenCpuSlow, EveryDenseCaseInInvariantNumericsRecomputedAndAccumulated) {
  for (const std::string& name : testing::kGoldenCases) {
    testing::expect_golden(name, cpu("invariant", 1),
                           {"train.numerics=invariant", "train.micro_batch_size=1", "parallel.recompute=full"},
                           testing::kGoldenF32);
    testing::expect_golden(
        name, cpu("fast", 3),
        {"train.micro_batch_size=2", "parallel.recompute=selective", "parallel.pipeline_schedule=zb_h1"},
        testing::kGoldenF32);
  }
}

TEST(GoldenCpuSlow, Bf16FollowsTheF32Run) {
  for (const std::string& name : testing::kGoldenCases) {
    testing::expect_golden(name, cpu("fast", 2), {"train.precision=bf16", "train.micro_batch_size=4"},
                           testing::kGoldenBf16);
  }
}

TEST(GoldenCpuSlow, Fp16FollowsTheF32Run) {
  for (const std::string& name : testing::kGoldenCases) {
    testing::expect_golden(name, cpu("fast", 2), {"train.precision=fp16", "train.micro_batch_size=4"},
                           testing::kGoldenF16);
  }
}

// One recipe, all the ways to compute it: the weights of the end are the same file.
TEST(GoldenCpuSlow, InvariantNumericsGiveTheSameBitsForAnyThreadsScheduleAndRecomputation) {
  const auto folder = std::filesystem::path(testing::kSourceDir) / "tests/golden/qwen3-qknorm";
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
