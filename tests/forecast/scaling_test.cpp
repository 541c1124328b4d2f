// More devices, and months of failures.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "support.h"
#include "weft/base/error.h"
#include "weft/forecast/failures.h"
#include "weft/forecast/scaling.h"

namespace weft {
namespace {

using testing::error_of;

HfConfig model_to_scale() {
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

TEST(Scaling, EfficiencyFallsAndSaysWhy) {
  Recipe r;
  r.train.seq_length = 512;
  r.train.global_batch_size = 8;
  r.train.micro_batch_size = 4;
  r.train.precision = PrecisionChoice::bf16;
  r.parallel.tp = 2;
  r.parallel.dp = 2;
  r.parallel.zero_stage = 1;
  const auto points = scale(r, model_to_scale(), preset_of("H100-SXM"), Profiles::built_in(), {3, 64});
  std::vector<int64_t> devices;
  for (const ScalePoint& p : points) devices.push_back(p.devices);
  EXPECT_EQ(devices, (std::vector<int64_t>{4, 8, 16, 32, 64}));
  EXPECT_EQ(points[0].efficiency, 1);
  for (size_t i = 1; i < points.size(); ++i) EXPECT_LE(points[i].efficiency, points[i - 1].efficiency * 1.02);
  EXPECT_NEAR(points[4].forecast.work.tokens, 32 * 4 * 512, 1);  // as many sequences a rank as before
  EXPECT_NE(points[4].cause.find("exposed dp: +"), std::string::npos) << points[4].cause;
  EXPECT_NE(to_string(points).find("|##############################|\n"), std::string::npos) << to_string(points);
}

TEST(Scaling, SharesOfTheRecipesRanksAreRefused) {
  Recipe r;
  r.train.global_batch_size = 8;
  r.parallel.dp = 2;
  r.parallel.micro_batches = {5, 3};
  const std::string refusal = testing::error_of<ConfigError>([&] {
    scale(r, model_to_scale(), preset_of("H100-SXM"), Profiles::built_in(), {2, 4});
  });
  EXPECT_SAYS(refusal, "--scale cannot run with parallel.micro_batches = [5, 3]");
  EXPECT_SAYS(refusal, "the nearest that works: parallel.micro_batches=[]");
}

TEST(Scaling, RangesAreRead) {
  EXPECT_EQ(device_range("8..1024").high, 1024);
  EXPECT_EQ(device_range("16").low, 16);
  for (const char* bad : {"", "8..", "9..8", "0..8", "a", "1..9999999999"})
    EXPECT_NE(error_of<ConfigError>([&] { device_range(bad); }).find("is no range of devices"), std::string::npos)
        << bad;
}

TEST(Failures, TheFormulaIsTheMeanOfRandomRuns) {
  const FailureSpec spec{.mean_s_between = 5000, .save_s = 60, .restart_s = 300};
  for (const double interval : {300., 800., 3000.}) {
    const double work = 400 * interval, formula = expected_run_s(work, interval, spec);
    EXPECT_NEAR(simulated_run_s(work, interval, spec, 7, 60) / formula, 1, 0.03) << interval;
  }
}

TEST(Failures, AForecastSaysHowLongUnluckyRunsTake) {
  Recipe r;
  r.train.seq_length = 512;
  r.train.global_batch_size = 8;
  r.train.precision = PrecisionChoice::bf16;
  ClusterSpec cluster = preset_of("H100-SXM");
  cluster.failures_per_device_hour = 0.05;
  const RunForecast f = forecast_run(r, model_to_scale(), cluster, Profiles::built_in());
  const int64_t steps = int64_t(1e6 / f.step.step_s);
  const nlohmann::json json = to_json(f, steps);
  const double expected = json["run_with_failures_s"], late = json["nine_of_ten_runs_s"];
  const std::vector<double> all =
      simulated_runs_s(f.step.step_s * double(steps), json["save_interval_s"], f.failures(), 5, 200);
  EXPECT_NEAR(double(std::count_if(all.begin(), all.end(), [&](double s) { return s <= late; })) / 200, 0.9, 0.07);
  EXPECT_GT(late, expected);
  EXPECT_SAYS(to_string(f, steps), "nine of ten simulated runs end within ");
  cluster.failures_per_device_hour = 1;
  cluster.restart_s = 36000;
  EXPECT_FALSE(
      to_json(forecast_run(r, model_to_scale(), cluster, Profiles::built_in()), steps).contains("nine_of_ten_runs_s"));
}

TEST(Failures, TheBestIntervalLosesLeast) {
  const FailureSpec spec{.mean_s_between = 20000, .save_s = 40, .restart_s = 600};
  const double best = best_save_interval(spec), least = expected_run_s(1e6, best, spec);
  EXPECT_NEAR(best, std::sqrt(2 * 40 * 20000.), 40);
  for (const double factor : {0.5, 0.8, 1.25, 2.0}) EXPECT_GT(expected_run_s(1e6, best * factor, spec), least);
}

}  // namespace
}  // namespace weft
