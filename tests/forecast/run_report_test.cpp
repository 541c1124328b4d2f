// Runs beside their forecasts.
#include "weft/forecast/run_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support.h"
#include "weft/base/error.h"
#include "weft/forecast/layout_planner.h"

namespace weft {
namespace {

HfConfig reported_config() {
  HfConfig config;
  config.has_folder = false;
  config.spec = {.vocab_size = 1024,
                 .width = 512,
                 .num_layers = 4,
                 .num_heads = 8,
                 .num_kv_heads = 8,
                 .head_dim = 64,
                 .ffn_width = 2048,
                 .max_positions = 512};
  config.spec.rope = RopeSpec{};
  return config;
}

Recipe reported_recipe() {
  Recipe r;
  r.train.seq_length = 512;
  r.train.global_batch_size = 16;
  r.train.micro_batch_size = 4;
  r.train.train_iters = 100;
  r.train.precision = PrecisionChoice::bf16;
  r.parallel.dp = 2;
  return r;
}

StepRecord step_of(int64_t step, double seconds) { return {.step = step, .step_time_s = seconds, .data_s = 0.01}; }

// The first step is slow, as it warms up.
RecordedRun recorded(const Recipe& recipe, double step_s = 1) {
  RecordedRun run{.folder = "runs/it", .recipe = recipe, .config = reported_config(), .metrics = {}};
  run.metrics.steps = {step_of(1, 50), step_of(2, step_s), step_of(3, step_s), step_of(4, step_s)};
  return run;
}

RunReport reported(const RecordedRun& run) { return report_of(run, preset_of("H100-SXM"), Profiles::built_in(), 0); }

double cause_s(const RunReport& r, const std::string& name) {
  for (const RunReport::Cause& c : r.causes)
    if (c.name == name) return c.seconds;
  return 0;
}
double part_s(const RunReport& r, const std::string& name) {
  for (const RunReport::Part& p : r.parts)
    if (p.name == name) return p.measured_s;
  return -1;
}

TEST(RunReport, PartsAddUpToTheStepAndCausesToAllTime) {
  RecordedRun run = recorded(reported_recipe());
  for (StepRecord& s : run.metrics.steps) s.waits_s = {{"dp", 0.2}, {"world", 0.04}};
  run.metrics.steps[0].save_s = run.metrics.steps[0].eval_s = 1000;  // of the step that is left out
  run.metrics.steps[2].save_s = 0.6;
  run.metrics.steps[3].eval_s = 0.3;
  const RunReport r = reported(run);
  EXPECT_NEAR(r.measured.step_s, 1, 1e-12);
  double parts = 0, causes = 0;
  for (const RunReport::Part& p : r.parts) parts += p.measured_s;
  for (const RunReport::Cause& c : r.causes) causes += c.seconds;
  EXPECT_NEAR(parts, 1, 1e-12);
  EXPECT_NEAR(part_s(r, "computing"), 0.75, 1e-12);
  EXPECT_NEAR(part_s(r, "exposed data"), 0.2, 1e-12);
  EXPECT_NEAR(r.wall_s, 1.3, 1e-12);
  EXPECT_NEAR(causes, r.wall_s, 1e-12);
  EXPECT_NEAR(cause_s(r, "checkpoints"), 0.2, 1e-12);
  EXPECT_NEAR(cause_s(r, "evaluation"), 0.1, 1e-12);
  EXPECT_NEAR(cause_s(r, "data"), 0.01, 1e-12);
  double exposed = 0;
  for (const auto& [axis, seconds] : r.forecast.step.exposed_s) exposed += seconds;
  EXPECT_NEAR(cause_s(r, "imbalance"), 0.24 - exposed, 1e-12);  // beyond what the links take
  EXPECT_SAYS(to_string(r), "beside 1 of 3 steps");
}

std::string started(int64_t newest, int64_t ranks) {
  return fmt::format("{{\"event\":\"started\",\"newest_step\":{},\"ranks\":{}}}\n", newest, ranks);
}
std::string layout_event(const std::string& layout) {
  return fmt::format("{{\"event\":\"layout\",\"layout\":\"{}\",\"ranks\":2}}\n", layout);
}

TEST(RunReport, MeansAreOfTheLayoutThatTheRunHasNow) {
  RecordedRun run = recorded(reported_recipe());
  run.metrics.steps = {step_of(1, 50), step_of(2, 4), step_of(3, 6), step_of(4, 40), step_of(5, 1), step_of(6, 3)};
  run.stretches = stretches_in(started(0, 4) + layout_event("dp 2") + started(3, 2));
  const RunReport r = reported(run);
  EXPECT_EQ(r.measured.first_step, 4);
  EXPECT_EQ(r.measured.counted, 2);  // the first of them warms up
  EXPECT_NEAR(r.measured.step_s, 2, 1e-12);
  ASSERT_EQ(r.before.size(), 1u);
  EXPECT_EQ(r.before[0].last_step, 3);
  EXPECT_NEAR(r.before[0].step_s, 5, 1e-12);
  EXPECT_NEAR(r.before[0].tokens_per_s, 16 * 512 / 5.0, 1e-6);
  EXPECT_SAYS(to_string(r),
              "in this layout since step 4, of which all else here is; before it\n  steps 1 to 3 on 4 ranks");
  EXPECT_EQ(to_json(r)["before"][0]["step_s"], r.before[0].step_s);
  run.metrics.steps.resize(3);
  EXPECT_SAYS(testing::error_of<ConfigError>([&] { reported(run); }), "in the layout that it has since step 4");
  run.stretches.clear();
  EXPECT_TRUE(reported(run).before.empty());
}

// A supervisor that was stopped, or killed, and another one in the recipe's own layout.
TEST(RunReport, ALayoutIsNoneOfASupervisorBefore) {
  const RunStretch two{.first_step = 1, .ranks = 2, .layout = "dp 2"}, own{.first_step = 11, .ranks = 2};
  const std::string before = layout_event("dp 2") + started(0, 2);
  EXPECT_EQ(stretches_in(before + "{\"event\":\"stopped\"}\n" + started(10, 2)), (std::vector{two, own}));
  const std::string first = R"({"event":"started","attempt":1,"newest_step":10,"ranks":2)";
  EXPECT_EQ(stretches_in(before + first + "}\n"), (std::vector{two, own})) << "it was killed";
  EXPECT_EQ(stretches_in(before + layout_event("dp 2") + first + "}\n"), std::vector{two}) << "told again";
  EXPECT_EQ(stretches_in(before + layout_event("dp 2") + first + ",\"layout\":\"\"}\n"), (std::vector{two, own}));
}

TEST(RunReport, StretchesAreThoseOfStepsThatWereKept) {
  const RunStretch own{.first_step = 1, .ranks = 4}, two{.first_step = 11, .ranks = 2, .layout = "dp 2"};
  EXPECT_TRUE(stretches_in("").empty());
  EXPECT_EQ(stretches_in(started(0, 4) + started(10, 4)), std::vector{own});  // began again as it was
  const std::string moved = started(0, 4) + layout_event("dp 2") + started(10, 2);
  EXPECT_EQ(stretches_in(moved), (std::vector{own, two}));
  EXPECT_EQ(stretches_in("torn {\n[1]\n" + moved + "{\"event\":\"started\"}\n"), (std::vector{own, two}));
  EXPECT_EQ(stretches_in(moved + started(20, 2)), (std::vector{own, two}));
  // No checkpoint of the two ranks was kept, and then one of four: the steps are of the last.
  const RunStretch again{.first_step = 6, .ranks = 4, .layout = "dp 4"};
  EXPECT_EQ(stretches_in(moved + layout_event("dp 4") + started(5, 4)), (std::vector{own, again}));
  EXPECT_EQ(stretches_in(moved + layout_event("dp 2") + started(0, 2)),
            (std::vector{RunStretch{.first_step = 1, .ranks = 2, .layout = "dp 2"}}));
}

TEST(RunReport, WhatTookMostComesFirst) {
  RecordedRun run = recorded(reported_recipe());
  for (StepRecord& s : run.metrics.steps) s.waits_s = {{"dp", 0.0}}, s.data_s = 0.9;
  EXPECT_EQ(reported(run).causes.at(0).name, "data");
  for (StepRecord& s : run.metrics.steps) s.save_s = 5;
  const RunReport saving = reported(run);
  EXPECT_EQ(saving.causes.at(0).name, "checkpoints");
  EXPECT_NEAR(saving.causes[0].seconds / saving.wall_s, 5. / 6, 1e-9);
}

TEST(RunReport, SavesHalfAsOftenAreTheChangeOfARunThatSavesMost) {
  Recipe recipe = reported_recipe();
  recipe.checkpoint.save_interval = 1;
  RecordedRun run = recorded(recipe);
  for (StepRecord& s : run.metrics.steps) s.save_s = 9;
  const RunReport r = reported(run);
  EXPECT_NEAR(r.gain, 0.45, 1e-9);
  EXPECT_EQ(r.change.find("checkpoint.save_interval = 2: "), 0u) << r.change;
}

TEST(RunReport, WithoutRecordedWaitsAStepIsDividedAsForecast) {
  Recipe recipe = reported_recipe();
  recipe.parallel.dp = 1;
  recipe.parallel.pp = 4;
  const RunReport r = reported(recorded(recipe));
  EXPECT_TRUE(std::isnan(part_s(r, "computing")));
  EXPECT_NEAR(cause_s(r, "bubble"), 0.99 * r.forecast.step.bubble_s / r.forecast.step.step_s, 1e-9);
  EXPECT_GT(cause_s(r, "bubble"), 0);
  EXPECT_TRUE(to_json(r)["parts"]["computing"]["measured_s"].is_null());
}

TEST(RunReport, WaitsForStagesAreBubbleAndMessagesAsForecast) {
  Recipe recipe = reported_recipe();
  recipe.parallel.dp = 1;
  recipe.parallel.pp = 4;
  RecordedRun run = recorded(recipe);
  for (StepRecord& s : run.metrics.steps) s.waits_s = {{"pp", 0.3}, {"pp_gradients", 0.1}};
  const RunReport r = reported(run);
  EXPECT_NEAR(part_s(r, "exposed pp and bubble"), 0.4, 1e-12);
  const double messages = r.forecast.step.exposed();
  EXPECT_NEAR(cause_s(r, "bubble"), 0.4 * r.forecast.step.bubble_s / (r.forecast.step.bubble_s + messages), 1e-9);
}

TEST(RunReport, TheRowsOfTheFirstRanksExpertsAreItsImbalance) {
  RecordedRun run = recorded(reported_recipe());
  run.config.spec.experts = {.count = 4, .chosen = 1, .width = 2048};
  run.config.spec.layers.assign(4, {.rope = RopeSpec{}, .experts = true});
  run.recipe.parallel.ep = 2;
  for (StepRecord& s : run.metrics.steps) s.waits_s = {{"ep", 0.0}}, s.expert_load = {{60, 30, 5, 5}};
  const RunReport r = reported(run);
  EXPECT_NEAR(r.measured.first_load, 1.8, 1e-12);
  EXPECT_NEAR(r.measured.busiest_load, 1.8, 1e-12);
  EXPECT_GT(cause_s(r, "imbalance"), 0);
  for (StepRecord& s : run.metrics.steps) s.expert_load = {{5, 5, 60, 30}};
  const RunReport other = reported(run);  // this rank waits, and computes less
  EXPECT_NEAR(other.measured.first_load, 0.2, 1e-12);
  EXPECT_EQ(cause_s(other, "imbalance"), 0);
}

TEST(RunReport, TheChangeThatGainsMostIsTheFastestNeighbourThatFits) {
  Recipe recipe = reported_recipe();
  recipe.parallel.recompute = RecomputeKind::full;
  recipe.train.micro_batch_size = 1;
  const RecordedRun run = recorded(recipe);
  const RunReport r = reported(run);
  ASSERT_FALSE(r.change.empty());
  EXPECT_GT(r.gain, 0);
  const ClusterSpec cluster = preset_of("H100-SXM");
  LayoutPlanner planner(recipe, run.config, cluster, Profiles::built_in());
  const auto now = planner.plan(choice_of(recipe)).value();
  const auto best = best_neighbour(now, planner, 1e12).value();
  EXPECT_EQ(r.change.find(best.text), 0u) << r.change;
  for (const RecomputeKind kind : {RecomputeKind::none, RecomputeKind::selective}) {
    LayoutChoice other = choice_of(recipe);
    other.recompute = kind;
    EXPECT_LE(best.found.step.step_s, planner.plan(other).value().step.step_s);
  }
  EXPECT_FALSE(best_neighbour(now, planner, 1).has_value());  // none fits into a byte
}

TEST(RunReport, SaysWhatTheRecordsDoNotSay) {
  RecordedRun run = recorded(reported_recipe());
  for (StepRecord& s : run.metrics.steps) s.data_s = 0;
  const RunReport r = reported(run);
  EXPECT_TRUE(std::isnan(part_s(r, "reading samples")));
  EXPECT_SAYS(to_string(r), "do not say what reading samples took");
  EXPECT_SAYS(to_string(r), "1.00000 s at most");
}

TEST(RunReport, ABudgetOfMemoryIsNoPartOfOtherLayouts) {
  Recipe recipe = reported_recipe();
  recipe.parallel.recompute = RecomputeKind::budget;
  recipe.parallel.memory_budget = "40 GiB";
  LayoutChoice other = choice_of(recipe);
  EXPECT_EQ(with_choice(recipe, other).parallel.memory_budget, "40 GiB");
  other.recompute = RecomputeKind::full;
  EXPECT_EQ(with_choice(recipe, other).parallel.memory_budget, "");
}

TEST(RunReport, APointOfABenchmarkCostsTheStepsThatItTook) {
  RecordedRun run = recorded(reported_recipe());
  run.metrics.steps[2].save_s = 2;
  run.metrics.tasks = {{.step = 1, .results = {{"it.acc", 0.5}, {"it.acc_stderr", 0.003}, {"new.acc", 0.5}}},
                       {.step = 3, .results = {{"it.acc", 0.54}, {"it.acc_stderr", 0.004}}},
                       {.step = 4, .results = {{"it.acc", 0.545}, {"it.acc_stderr", 0.003}, {"late.acc", 1}}}};
  ClusterSpec cluster = preset_of("H100-SXM");
  cluster.price_per_device_hour = 36;
  const RunReport r = report_of(run, cluster, Profiles::built_in(), 0);
  ASSERT_EQ(r.gained.size(), 2u);  // what both records have
  const double second = 2 * 36.0 / 3600;
  EXPECT_EQ(r.gained[0].from_step, 1);
  EXPECT_NEAR(r.gained[0].price, (3 + 2) * second, 1e-12);
  EXPECT_NEAR(r.gained[0].points(), 4.5, 1e-12);
  EXPECT_TRUE(r.gained[0].is_sure());
  EXPECT_EQ(r.gained[1].from_step, 3);
  EXPECT_NEAR(r.gained[1].price, second, 1e-12);
  EXPECT_NEAR(r.gained[1].error, 0.005, 1e-12);
  EXPECT_FALSE(r.gained[1].is_sure());
  EXPECT_SAYS(to_string(r), "steps 1 to 4: 0.5000 to 0.5450, 0.1 for +4.50 +- 0.42 points: 0.02222 a point");
  EXPECT_SAYS(to_string(r), "no gain that is sure");
  EXPECT_TRUE(to_json(r)["gained"][1]["price_per_point"].is_null());
  cluster.price_per_device_hour = 0;
  EXPECT_TRUE(report_of(run, cluster, Profiles::built_in(), 0).gained.empty());
}

TEST(RunReport, ARunWithoutStepsIsRefused) {
  RecordedRun run = recorded(reported_recipe());
  run.metrics.steps.clear();
  EXPECT_SAYS(testing::error_of<ConfigError>([&] { reported(run); }), "runs/it: the run has trained no step yet");
}

TEST(RunScaling, TellsStrongFromWeakBesideTheFewestDevices) {
  const auto on = [](int64_t dp, int64_t batch, double step_s) {
    Recipe recipe = reported_recipe();
    recipe.parallel.dp = dp;
    recipe.train.global_batch_size = batch;
    return recorded(recipe, step_s);
  };
  const ClusterSpec cluster = preset_of("H100-SXM");
  const RunScaling s = scaling_of({on(2, 16, 0.6), on(2, 32, 1.25), on(1, 16, 1)}, &cluster, Profiles::built_in());
  ASSERT_EQ(s.rows.size(), 3u);
  EXPECT_EQ(s.rows[0].devices, 1);
  EXPECT_STREQ(s.rows[1].kind, "strong");
  EXPECT_NEAR(s.rows[1].speedup, 1 / 0.6, 1e-12);
  EXPECT_NEAR(s.rows[1].efficiency, 0.5 / 0.6, 1e-12);
  EXPECT_STREQ(s.rows[2].kind, "weak");
  EXPECT_NEAR(s.rows[2].efficiency, 0.8, 1e-12);
  EXPECT_GT(s.rows[1].forecast_efficiency, 0.3);
  EXPECT_LT(s.rows[1].forecast_efficiency, 1.02);
  EXPECT_EQ(to_json(s)[2]["scaling"], "weak");
  EXPECT_EQ(to_string(scaling_of({on(1, 16, 1), on(2, 16, 1)}, nullptr, Profiles::built_in())).find("forecast"),
            std::string::npos);
}

TEST(RunScaling, OfRunsWithPhasesCountsTheTokensOfEachStep) {
  RecordedRun one = recorded(reported_recipe()), two = one;
  one.recipe.parallel.dp = 1;
  for (RecordedRun* run : {&one, &two}) {
    run->recipe.train.rampup_batch_size = {8, 8, 100};
    for (StepRecord& s : run->metrics.steps)
      s.phase = StepRecord::Phase{.global_batch_size = s.step < 4 ? 8 : 16, .seq_length = 512};
  }
  const RunScaling s = scaling_of({two, one}, nullptr, Profiles::built_in());
  EXPECT_NEAR(s.rows.at(1).tokens, (8 + 8 + 16) * 512 / 3.0, 1e-6);
  EXPECT_STREQ(s.rows[1].kind, "strong");
  const ClusterSpec cluster = preset_of("H100-SXM");
  EXPECT_SAYS(testing::error_of<ConfigError>([&] {
                scaling_of({two, one}, &cluster, Profiles::built_in());
              }),
              "a forecast is of steps that are alike");
}

TEST(RunScaling, IsOfRunsThatTrainTheSame) {
  RecordedRun one = recorded(reported_recipe()), other = one;
  other.config.spec.width = 256;
  EXPECT_SAYS(testing::error_of<ConfigError>([&] {
                scaling_of({one, other}, nullptr, Profiles::built_in());
              }),
              "scaling is of runs of one model");
}

}  // namespace
}  // namespace weft
