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

// Whether a number of the case's train.json, if it has one, is a multiple of `n`.
bool divides(const GoldenCase& c, const char* key, int64_t n) { return c.train.value(key, n) % n == 0; }
bool has_even_experts(const GoldenCase& c) {
  const nlohmann::json config = testing::read_json(c.folder / "config.json");
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts"})
    if (config.value(key, 0) % 2 != 0) return false;
  return true;
}

bool has_setting(const std::vector<std::string>& layout, const char* key) {
  return std::any_of(layout.begin(), layout.end(), [&](const std::string& s) { return s.starts_with(key); });
}

// What a case is run on in any event, where it can be: its sequences cut, its experts dealt out, and both at once.
struct GoldenNeed {
  bool cp, ep;
  bool is_met_by(const std::vector<std::string>& layout) const {
    return has_setting(layout, "parallel.cp=") == cp && has_setting(layout, "parallel.ep=") == ep;
  }
};
constexpr GoldenNeed kGoldenNeeds[] = {{.cp = true, .ep = false}, {.cp = false, .ep = true}, {.cp = true, .ep = true}};
constexpr size_t kLayoutsOfACase = 12;

// The layouts of the `number`-th case, by their places in kGoldenLayouts, of those that `runs`: one for each need, then
// others. The next case begins where others have not been.
std::vector<size_t> golden_layouts_for(size_t number, const std::function<bool(size_t)>& runs) {
  const size_t all = kGoldenLayouts.size();
  std::vector<size_t> chosen;
  const auto take = [&](size_t i) {
    const bool taken = std::count(chosen.begin(), chosen.end(), i) == 0 && runs(i);
    if (taken) chosen.push_back(i);
    return taken;
  };
  for (const GoldenNeed& need : kGoldenNeeds) {
    std::vector<size_t> some;
    for (size_t i = 0; i < all; ++i)
      if (need.is_met_by(kGoldenLayouts[i])) some.push_back(i);
    for (size_t i = 0; i < some.size(); ++i)
      if (take(some[(number + i) % some.size()])) break;
  }
  for (size_t i = 0; i < all && chosen.size() < kLayoutsOfACase; ++i) take((5 * number + i) % all);
  return chosen;
}

// Whatever a case refuses, and wherever it begins.
TEST(GoldenLayouts, CutSequencesAndDealOutExpertsOfEveryCaseThatCan) {
  const std::set<std::string> no_experts{"parallel.ep=2", "parallel.ep=4"};
  const std::set<std::string> of_six{"parallel.ep=2", "parallel.ep=4", "parallel.dp=4", "parallel.pp=4"};  // sequences
  const std::set<std::string> of_two_blocks{"parallel.ep=4", "parallel.cp=4", "parallel.pp=4",
                                            "parallel.pipeline_schedule=zbv"};
  const std::set<std::string> whole_sequences{"parallel.cp=2", "parallel.cp=4"};
  for (const std::set<std::string>& refused :
       {std::set<std::string>{}, no_experts, of_six, of_two_blocks, whole_sequences}) {
    const auto runs = [&](size_t i) {
      return std::none_of(kGoldenLayouts[i].begin(), kGoldenLayouts[i].end(),
                          [&](const std::string& s) { return refused.count(s) > 0; });
    };
    for (size_t number = 0; number < kGoldenLayouts.size(); ++number) {
      const std::vector<size_t> chosen = golden_layouts_for(number, runs);
      EXPECT_EQ(std::set<size_t>(chosen.begin(), chosen.end()).size(), kLayoutsOfACase);
      EXPECT_EQ(chosen.size(), kLayoutsOfACase);
      EXPECT_TRUE(std::all_of(chosen.begin(), chosen.end(), runs));
      for (const GoldenNeed& need : kGoldenNeeds) {
        const auto is_met_by = [&](size_t i) { return need.is_met_by(kGoldenLayouts[i]); };
        bool can = false;
        for (size_t i = 0; i < kGoldenLayouts.size(); ++i) can = can || (runs(i) && is_met_by(i));
        EXPECT_EQ(std::any_of(chosen.begin(), chosen.end(), is_met_by), can)
            << number << " cp " << need.cp << " ep " << need.ep;
      }
    }
  }
}

TEST_P(GoldenCpuSlow, EveryCaseOnManyLayouts) {
  size_t cases = 0;
  for_built_cases([&](const GoldenCase& c) {
    const auto with_settings = [](std::vector<std::string> layout) {
      for (const char* more : {"train.micro_batch_size=1", "run.threads=1"}) layout.push_back(more);
      return layout;
    };
    const std::vector<size_t> chosen =
        golden_layouts_for(cases++, [&](size_t i) { return can_run(c, with_settings(kGoldenLayouts[i])); });
    // Sizes that nothing divides (33 tokens, 5 experts, 3 sequences) leave fewer layouts, as each says by name.
    const bool even = divides(c, "seq_len", 8) && divides(c, "global_batch_size", 2) && has_even_experts(c);
    if (even) { EXPECT_GE(chosen.size(), kLayoutsOfACase); }
    const auto is_on = [&](const char* axis) {
      return std::any_of(chosen.begin(), chosen.end(), [&](size_t i) { return has_setting(kGoldenLayouts[i], axis); });
    };
    if (even) {
      EXPECT_TRUE(is_on("parallel.cp=")) << c.name << ": no sequence is cut";
      EXPECT_EQ(is_on("parallel.ep="), testing::has_experts(c)) << c.name << ": whether experts are dealt out";
    }
    for (const size_t i : chosen) {
      const std::vector<std::string> overrides = with_settings(kGoldenLayouts[i]);
      SCOPED_TRACE(fmt::format("{}", fmt::join(overrides, " ")));
      const bool invariant = overrides[0] == "train.numerics=invariant";
      testing::expect_golden(c, cpu(invariant ? "invariant" : "fast", 1), overrides, testing::tolerance_of_layouts(c));
    }
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
