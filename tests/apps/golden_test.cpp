// Golden cases of what a model is tuned by, adapters, objectives and optimizers, each by `weft train` alone.
#include "apps/program.h"
#include "train/golden_cases.h"

namespace weft {
namespace {

using testing::GoldenCase;

// Whether it is of another objective, adapter or optimizer than pre-training.
bool tunes(const GoldenCase& c) {
  return testing::is_a_run(c) && (testing::kind_of(c) != "pretrain" || c.train.contains("optimizer"));
}

// The case by the keys of a recipe, with `more` after them; judged by the files that the command leaves.
void expect_golden_command(const GoldenCase& c, const std::vector<std::string>& more,
                           const testing::GoldenTolerance& tolerance) {
  testing::expect_known_keys(c);
  const testing::TempDir dir;
  testing::spill(dir / "r.toml", "[run]\nthreads = 1\n");
  std::vector<std::string> args{"train", (dir / "r.toml").string()};
  for (const auto& settings : {testing::golden_settings(c.folder, dir / "run", {}), testing::case_settings(c), more})
    args.insert(args.end(), settings.begin(), settings.end());
  const testing::Finished f = testing::weft(args);
  ASSERT_EQ(f.status, 0) << f.err;
  testing::expect_golden_records(dir / "run", c.folder, tolerance);
}

// f(case) for each of them.
template <class F>
void for_tuning_cases(const F& f) {
  int run = 0;
  for (const GoldenCase& c : testing::golden_cases()) {
    if (!tunes(c)) continue;
    SCOPED_TRACE(c.name);
    f(c);
    ++run;
  }
  if (run == 0) GTEST_SKIP() << "the folders have no such case";
}

TEST(GoldenCommand, TrainsEveryCaseAsTheIndependentImplementationDoes) {
  for_tuning_cases(
      [](const GoldenCase& c) { expect_golden_command(c, {testing::up_to_four(c)}, testing::f32_tolerance(c)); });
}

TEST(GoldenCommandSlow, TrainsEveryCaseSoOnLayouts) {
  for_tuning_cases([](const GoldenCase& c) {
    for (const char* layout : {"parallel.dp=2", "parallel.tp=2", "parallel.cp=2", "parallel.pp=2"}) {
      SCOPED_TRACE(layout);
      expect_golden_command(c, {"train.micro_batch_size=1", layout}, testing::tolerance_of_layouts(c));
    }
  });
}

}  // namespace
}  // namespace weft
