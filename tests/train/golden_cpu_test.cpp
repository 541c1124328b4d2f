#include "train/golden_cases.h"
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

using testing::GoldenCase;

// Each test takes its share of the cases, so that several run side by side.
constexpr size_t kShares = 4;
class GoldenCpu : public ::testing::TestWithParam<size_t> {
 protected:
  // f(case) for every case of the share that weft can run.
  template <class F>
  void for_built_cases(const F& f) {
    const std::vector<GoldenCase> all = testing::golden_cases();
    EXPECT_FALSE(all.empty());
    int run = 0;
    for (size_t i = GetParam(); i < all.size(); i += kShares) {
      SCOPED_TRACE(all[i].name);
      if (!testing::is_a_run(all[i])) continue;
      f(all[i]);
      ++run;
    }
    if (run == 0) GTEST_SKIP() << "the folders have no case for this share that weft can run";
  }
};
class GoldenCpuSlow : public GoldenCpu {};
INSTANTIATE_TEST_SUITE_P(Share, GoldenCpu, ::testing::Range(size_t{0}, kShares));
INSTANTIATE_TEST_SUITE_P(Share, GoldenCpuSlow, ::testing::Range(size_t{0}, kShares));

TEST_P(GoldenCpu, EveryCaseInF32) {
  for_built_cases([](const GoldenCase& c) {
    testing::expect_golden(c, cpu("fast", 2), {testing::up_to_four(c)}, testing::f32_tolerance(c));
  });
}

// Names what the folders hold that weft cannot run.
TEST(GoldenCases, ThatAreNotBuiltYet) {
  std::string skipped;
  for (const GoldenCase& c : testing::golden_cases())
    if (const std::string what = testing::not_built_yet(c); !what.empty())
      skipped += fmt::format("\n  {}: {}", c.name, what);
  if (!skipped.empty()) GTEST_SKIP() << "weft has not built what these are about:" << skipped;
}

// What a rank more or a schedule more may change: the order of sums.
const std::vector<std::vector<std::string>> kGoldenLayouts{
    {"parallel.dp=2"},
    {"parallel.dp=4", "parallel.zero_stage=1"},
    {"parallel.dp=2", "parallel.zero_stage=2", "parallel.recompute=full"},
    {"parallel.dp=4", "parallel.zero_stage=3", "parallel.zero_shard_size=2"},
    {"parallel.tp=2"},
    {"parallel.tp=4", "parallel.sequence_parallel=false"},
    {"parallel.tp=4", "parallel.recompute=selective"},
    {"parallel.pp=2"},
    {"parallel.pp=2", "parallel.pipeline_schedule=gpipe", "parallel.recompute=full"},
    {"parallel.pp=2", "parallel.pipeline_schedule=zb_h1", "parallel.tp=2"},
    {"parallel.pp=2", "parallel.pipeline_schedule=zbv", "parallel.tp=2", "parallel.recompute=selective"},
    {"parallel.pp=2", "parallel.pipeline_schedule=interleaved_1f1b", "parallel.virtual_pipeline_parallel_size=2"},
    {"parallel.pp=4", "parallel.pipeline_schedule=zb_h1"},
    {"parallel.dp=2", "parallel.tp=2", "parallel.pp=2", "parallel.zero_stage=2"},
    {"parallel.cp=2"},
    {"parallel.cp=2", "parallel.cp_comm_type=a2a", "parallel.tp=2", "parallel.zero_stage=2"},
    {"parallel.cp=2", "parallel.cp_comm_type=all_gather", "parallel.dp=2", "parallel.recompute=selective"},
    {"parallel.cp=4", "parallel.cp_comm_type=a2a+p2p", "parallel.cp_a2a_size=2", "parallel.zero_stage=1"},
    {"parallel.ep=2", "parallel.dp=2"},
    {"parallel.ep=2", "parallel.cp=2", "parallel.tp=2", "parallel.recompute=full"},
    {"parallel.ep=2", "parallel.dp=4", "parallel.zero_stage=3"},
    {"parallel.ep=4", "parallel.dp=4", "parallel.zero_stage=1", "parallel.recompute=selective"},
    {"parallel.ep=4", "parallel.dp=2", "parallel.cp=2", "parallel.pp=2", "parallel.pipeline_schedule=zb_h1"},
    {"train.numerics=invariant", "parallel.dp=2", "parallel.pp=2"},
    {"train.numerics=invariant", "parallel.dp=4", "parallel.zero_stage=3", "parallel.recompute=selective"}};

// Whether the layout can be cut out of the model: a small one has too few blocks for some.
bool can_run(const GoldenCase& c, const std::vector<std::string>& overrides) {
  try {
    testing::TempDir dir;
    const Recipe recipe = testing::golden_recipe(c.folder, dir / "run", overrides);
    check_supported(recipe);
    plan_run(recipe, *cpu("fast", 1).workspace_model);
    return true;
  } catch (const ConfigError&) { return false; }
}

// On twelve each; the next case begins where others have not been.
TEST_P(GoldenCpuSlow, EveryCaseOnManyLayouts) {
  size_t cases = 0;
  for_built_cases([&](const GoldenCase& c) {
    const size_t first = 5 * cases++;
    int judged = 0;
    for (size_t i = 0; i < kGoldenLayouts.size() && judged < 12; ++i) {
      std::vector<std::string> overrides = kGoldenLayouts[(first + i) % kGoldenLayouts.size()];
      SCOPED_TRACE(fmt::format("{}", fmt::join(overrides, " ")));
      const bool invariant = overrides[0] == "train.numerics=invariant";
      for (const char* more : {"train.micro_batch_size=1", "run.threads=1"}) overrides.push_back(more);
      if (!can_run(c, overrides)) continue;
      testing::expect_golden(c, cpu(invariant ? "invariant" : "fast", 1), overrides, testing::tolerance_of_layouts(c));
      ++judged;
    }
    EXPECT_GE(judged, 12);
  });
}

// The host looks at nothing that is a device's own, and writes over nothing before the device is done with it.
// Not every case, as waiting takes long: dense ones, experts with all that the host looks at, objectives that score
// first.
TEST(GoldenApartSlow, DenseCasesAndExpertsOnADeviceThatIsLateAndApart) {
  std::set<std::string> names(testing::kGoldenCases.begin(), testing::kGoldenCases.end());
  names.insert({"deepseek-v3-bias", "gpt-oss", "dpo", "grpo-sequence-kl", "ppo", "distill-forward"});
  for (const GoldenCase& c : testing::golden_cases()) {
    if (names.erase(c.name) == 0) continue;
    SCOPED_TRACE(c.name);
    testing::expect_golden(c, testing::apart(cpu("fast", 2)), {testing::up_to_four(c), "parallel.recompute=selective"},
                           testing::tolerance_of_layouts(c));
  }
  EXPECT_TRUE(names.empty() || std::getenv("WEFT_GOLDEN") != nullptr) << "not all of them are there";
}

TEST_P(GoldenCpuSlow, EveryCaseInInvariantNumericsRecomputedAndAccumulated) {
  for_built_cases([](const GoldenCase& c) {
    testing::expect_golden(c, cpu("invariant", 1),
                           {"train.numerics=invariant", "train.micro_batch_size=1", "parallel.recompute=full"},
                           testing::tolerance_of_layouts(c));
    testing::expect_golden(
        c, cpu("fast", 3),
        {"train.micro_batch_size=2", "parallel.recompute=selective", "parallel.pipeline_schedule=zb_h1"},
        testing::tolerance_of_layouts(c));
  });
}

// Dense models with moments in full that foretell tokens do. Elsewhere a router that rounds chooses other experts, a
// moment that rounds has another code, and the losses of pairs and rollouts are differences of sums.
bool rounds_smoothly(const GoldenCase& c) {
  return !testing::has_experts(c) && !testing::is_in_codes(c) && testing::kind_of(c) == "pretrain";
}

TEST_P(GoldenCpuSlow, Bf16FollowsTheF32Run) {
  for_built_cases([](const GoldenCase& c) {
    if (!rounds_smoothly(c)) return;
    for (const char* layout : {"parallel.dp=1", "parallel.tp=2"})
      testing::expect_golden(c, cpu("fast", 2), {"train.precision=bf16", "train.micro_batch_size=4", layout},
                             testing::kGoldenBf16);
  });
}

TEST_P(GoldenCpuSlow, Fp16FollowsTheF32Run) {
  for_built_cases([](const GoldenCase& c) {
    if (!rounds_smoothly(c)) return;
    testing::expect_golden(c, cpu("fast", 2), {"train.precision=fp16", "train.micro_batch_size=4"},
                           testing::kGoldenF16);
  });
}

// One recipe, all the ways to compute it: the weights of the end are the same file.
TEST(GoldenBitsSlow, InvariantNumericsGiveTheSameBitsForAnyThreadsScheduleAndRecomputation) {
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
