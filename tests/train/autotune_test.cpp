// Runs that find settings themselves: every step trains, and what was found stays.
#include <nlohmann/json.hpp>

#include "train/golden.h"
#include "weft/apps/backends.h"
#include "weft/train/autotune.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

Recipe tuned_recipe(const fs::path& run, std::vector<std::string> settings) {
  const std::vector<std::string> usual{"train.seq_length=16",
                                       "train.global_batch_size=4",
                                       "train.micro_batch_size=2",
                                       "train.train_iters=13",
                                       "optimizer.lr_warmup_iters=0",
                                       "optimizer.lr_decay_style=constant",
                                       "checkpoint.save_interval=0",
                                       "train.log_grad_norms=false",
                                       "run.threads=1",
                                       "run.backend=cpu"};
  settings.insert(settings.begin(), usual.begin(), usual.end());
  Recipe recipe = testing::golden_recipe(fs::path(testing::kSourceDir) / "tests/golden/llama-gqa", run, settings);
  check_supported(recipe);
  return recipe;
}

Metrics records_of_tuned(const Recipe& recipe) {
  testing::train(recipe, machine_for(recipe));
  return read_metrics(fs::path(recipe.run.dir) / "metrics.jsonl");
}

TuningRecord found_by(const Recipe& recipe) {
  const fs::path file = fs::path(recipe.run.dir) / "autotune.json";
  return tuning_record_of(testing::slurp(file), file.string());
}

std::string weights_behind(const fs::path& run, int64_t step) {
  return testing::slurp(run / fmt::format("checkpoints/step-{}/model.safetensors", step));
}

TEST(AutotunedRun, HasTheBitsOfOneWithoutInInvariantNumerics) {
  const testing::TempDir dir;
  const std::vector<std::string> invariant{"train.numerics=invariant", "parallel.pp=2"};
  std::vector<std::string> tuned = invariant;
  tuned.push_back("train.autotune=true");
  const Recipe with = tuned_recipe(dir / "with", tuned);
  const Metrics a = records_of_tuned(tuned_recipe(dir / "without", invariant)), b = records_of_tuned(with);
  ASSERT_EQ(b.steps.size(), 13u);  // no step is repeated
  for (size_t i = 0; i < b.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << i;
    EXPECT_EQ(b.steps[i].step, int64_t(i) + 1);
    EXPECT_FALSE(b.steps[i].phase);
  }
  ASSERT_FALSE(weights_behind(dir / "with", 13).empty());
  EXPECT_TRUE(weights_behind(dir / "with", 13) == weights_behind(dir / "without", 13));
  const TuningRecord found = found_by(with);
  ASSERT_EQ(found.trials.size(), 2u);
  EXPECT_EQ(found.trials[0].settings, tuned_settings_of(with));
  EXPECT_EQ(found.trials[1].settings.pipeline_schedule, ScheduleKind::zb_h1);
  EXPECT_EQ(found.trials[1].first_step, kStepsOfTrial);
  for (const TuningTrial& t : found.trials) EXPECT_GT(t.step_s.value_or(0), 0);
  EXPECT_EQ(found.of, recipe_to_tune(with));
  EXPECT_SAYS(testing::slurp(dir / "with/events.jsonl"), "\"autotuned\"");
}

TEST(AutotunedRun, TakesWhatItHasFoundWhenItGoesOn) {
  const testing::TempDir dir;
  const Recipe first = tuned_recipe(dir / "run", {"train.autotune=true"});
  const Metrics plain = records_of_tuned(tuned_recipe(dir / "plain", {})), begun = records_of_tuned(first);
  ASSERT_EQ(begun.steps.size(), 13u);
  for (size_t i = 0; i < 13; ++i)  // other micro-batches add up in another order
    EXPECT_NEAR(begun.steps[i].loss, plain.steps[i].loss, 1e-4 * plain.steps[i].loss) << i;
  const std::string file = testing::slurp(dir / "run/autotune.json");
  EXPECT_EQ(found_by(first).trials.at(1).settings.micro_batch_size, 4);
  const Metrics all = records_of_tuned(tuned_recipe(dir / "run", {"train.autotune=true", "train.train_iters=26"}));
  EXPECT_EQ(all.steps.size(), 26u);
  EXPECT_EQ(testing::slurp(dir / "run/autotune.json"), file);
  const std::string events = testing::slurp(dir / "run/events.jsonl");
  EXPECT_EQ(events.find("\"autotuned\""), events.rfind("\"autotuned\""));  // once
  EXPECT_EQ(as_tuned(first, dir / "run").train.micro_batch_size, found_by(first).chosen.micro_batch_size);
  TuningRecord odd = found_by(first);
  odd.chosen.micro_batch_size = 3;
  testing::spill(dir / "run/autotune.json", to_json(odd).dump());
  const Recipe longer = tuned_recipe(dir / "run", {"train.autotune=true", "train.train_iters=39"});
  EXPECT_SAYS(testing::error_of<FileError>([&] { records_of_tuned(longer); }),
              "autotune.json: chosen: train.micro_batch_size = 3, which no run of this recipe tries");
}

TEST(TuningRecord, IsReadAsItWasWritten) {
  const TunedSettings zb{2, ScheduleKind::zb_h1, CpCommType::a2a};
  const TuningRecord record{.of = {{"parallel.pp", "2"}},
                            .chosen = zb,
                            .trials = {{.settings = {}, .step_s = 0.5}, {.settings = zb, .first_step = 5}}};
  EXPECT_EQ(tuning_record_of(to_json(record).dump(), "a"), record);
  nlohmann::json bad = to_json(record);
  bad["chosen"]["parallel.pipeline_schedule"] = "zb";
  EXPECT_SAYS(testing::error_of<FileError>([&] { tuning_record_of(bad.dump(), "autotune.json"); }), "autotune.json");
  Recipe layout;
  Recipe other = layout;
  other.parallel.dp = 2;
  EXPECT_NE(recipe_to_tune(layout), recipe_to_tune(other));
}

TEST(TuningRecord, SettingsThatTheRecipeCannotHaveAreRefusedByTheFileThatSaysThem) {
  const testing::TempDir dir;
  const Recipe recipe = tuned_recipe(dir / "run", {"train.autotune=true"});
  fs::create_directories(dir / "run");
  const auto spill = [&](const TunedSettings& chosen) {
    testing::spill(dir / "run/autotune.json",
                   to_json(TuningRecord{.of = recipe_to_tune(recipe), .chosen = chosen}).dump());
  };
  spill({.micro_batch_size = 4});
  EXPECT_EQ(as_tuned(recipe, dir / "run").train.micro_batch_size, 4);
  spill({.micro_batch_size = 3});
  EXPECT_SAYS(testing::error_of<FileError>([&] { as_tuned(recipe, dir / "run"); }),
              "autotune.json: chosen: train.micro_batch_size = 3, which no run of this recipe tries");
}

// A fleet may bring a run into a layout that leaves nothing to try: it trains as the recipe says.
TEST(AutotunedRun, MakesNoTrialWhereThereIsNothingToTry) {
  const testing::TempDir dir;
  const Recipe recipe = tuned_recipe(
      dir / "run", {"train.autotune=true", "train.numerics=invariant", "fleet.available=n", "fleet.max_ranks=2"});
  EXPECT_EQ(records_of_tuned(recipe).steps.size(), 13u);
  EXPECT_FALSE(fs::exists(dir / "run/autotune.json"));
}

TEST(TuningRecord, StepsThatAreNotSettledDoNotCount) {
  EXPECT_EQ(settled_seconds({9, 8, 3, 1, 2}), 2);
  EXPECT_EQ(settled_seconds({0, 0, 7}), 7);
}

}  // namespace
}  // namespace weft
