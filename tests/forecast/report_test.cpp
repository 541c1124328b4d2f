// What `weft plan score` says of forecasts.
#include <gtest/gtest.h>

#include "support.h"
#include "weft/forecast/score_report.h"

namespace weft {
namespace {

PlannedRow row_of(const std::string& id, int64_t devices, double measured) {
  PlannedRow p;
  p.row.id = id;
  p.row.device = "H100-80GB";
  p.row.precision = "bf16";
  p.row.source = "somebody";
  p.row.group = "a";
  p.row.n_layers = p.row.d_model = 1;
  p.row.n_gpus = devices;
  p.row.tokens_per_s_per_gpu = measured;
  return p;
}

TEST(Score, ErrorsAreMediansOfRatios) {
  const Errors e = errors_of({1.2, 0.9, 1.0, 1.05, 2.0});
  EXPECT_EQ(e.rows, 5u);
  EXPECT_NEAR(e.bias, 0.05, 1e-12);
  EXPECT_NEAR(e.median, 0.1, 1e-12);
  EXPECT_NEAR(e.p90, 1, 1e-12);
  EXPECT_EQ(errors_of({}).rows, 0u);
}

TEST(Score, ReportsErrorsPairsScalingAndWhatIsMissing) {
  std::vector<PlannedRow> rows{row_of("r1", 8, 100), row_of("r2", 16, 80), row_of("r3", 8, 50)};
  rows[2].reason = "no such model, \"x\"";
  std::vector<RowForecast> forecasts{{110, 20}, {88, 90}, {}};
  rows[0].row.peak_memory_gib = 10;
  rows[0].row.mem_kind = "reserved";
  rows[1].row.outcome = "OOM";
  const ScoreReport report = score_of(rows, forecasts, {{"r1", "r2"}, {"r2", "r1"}, {"r1", "r3"}});
  EXPECT_EQ(report.complete, 3u);
  EXPECT_EQ(report.forecast, 2u);
  ASSERT_EQ(report.strata.size(), 1u);
  EXPECT_EQ(report.strata[0].name, "H100-80GB dense bf16");
  EXPECT_NEAR(report.all.median, 0.1, 1e-12);
  EXPECT_NEAR(report.scaling.median, 0, 1e-12);  // both are 10 % too high
  EXPECT_EQ(report.pairs, 3u);                   // what is not forecast counts against
  EXPECT_EQ(report.pairs_right, 1u);
  EXPECT_EQ(report.out_of_memory[1][1], 1u);
  EXPECT_EQ(report.out_of_memory[0][0], 1u);
  ASSERT_EQ(report.memory.size(), 1u);
  EXPECT_NEAR(report.memory[0].errors.bias, 1, 1e-12);
  EXPECT_EQ(report.missing[0].first, "r3");
  EXPECT_NE(to_string(report).find("r3: no such model"), std::string::npos);
  EXPECT_EQ(forecasts_csv(rows, forecasts),
            "id,tokens_per_s_per_gpu,peak_memory_gib,reason\nr1,110,20,\nr2,88,90,\nr3,,,\"no such model, "
            "\"\"x\"\"\"\n");
}

// Measured figures are never looked at while forecasting.
TEST(Score, AForecastDoesNotChangeWithWhatWasMeasured) {
  RunRow row;
  row.id = "r";
  row.device = "H100-80GB";
  row.precision = "bf16";
  row.framework = "NeMo/Megatron-Core";
  row.n_layers = 2, row.d_model = 256, row.n_heads = 4, row.ffn = 512, row.vocab = 512, row.seq_len = 128;
  row.n_gpus = row.dp = 2, row.global_batch = 4, row.micro_batch = 1, row.zero_stage = 1;
  RunRow measured = row;
  measured.tokens_per_s_per_gpu = 1;
  measured.step_time_s = 9;
  measured.peak_memory_gib = 1;
  measured.outcome = "OOM";
  const auto planned = plan_rows({row, measured}, [](size_t) {});
  ASSERT_EQ(planned[0].reason, "");
  const RowForecast a = forecast_of(planned[0], Profiles::built_in()),
                    b = forecast_of(planned[1], Profiles::built_in());
  EXPECT_EQ(a.tokens_per_s_per_gpu, b.tokens_per_s_per_gpu);
  EXPECT_EQ(a.peak_memory_gib, b.peak_memory_gib);
  EXPECT_GT(a.tokens_per_s_per_gpu, 0);
}

TEST(Score, RowsThatCannotBePlannedSayWhyEachOfThem) {
  RunRow row;
  row.id = "r";
  row.device = "H100-80GB";
  row.precision = "bf16";
  row.n_layers = 2, row.d_model = 256, row.n_heads = 4, row.ffn = 512, row.vocab = 512, row.seq_len = 128;
  row.n_gpus = row.pp = 3, row.dp = row.tp = row.cp = 1, row.global_batch = 3, row.micro_batch = 1;
  RunRow huge = row;
  huge.tp = huge.pp = int64_t{1} << 32;
  RunRow other_nodes = row;
  other_nodes.tp = other_nodes.n_gpus = 4, other_nodes.pp = 1;
  other_nodes.gpus_per_node = 4;
  RunRow halves = other_nodes;
  halves.gpus_per_node = 2;
  const auto planned = plan_rows({row, row, huge, other_nodes, halves}, [](size_t) {});
  EXPECT_NE(planned[0].reason.find("parallel.pp = 3 cannot run"), std::string::npos) << planned[0].reason;
  EXPECT_EQ(planned[1].reason, planned[0].reason);
  EXPECT_NE(planned[2].reason.find("beyond what can be planned"), std::string::npos);
  EXPECT_GT(forecast_of(planned[3], Profiles::built_in()).tokens_per_s_per_gpu,
            forecast_of(planned[4], Profiles::built_in()).tokens_per_s_per_gpu);  // tp leaves the node
}

TEST(Score, FittedNumbersFindTheProgramThatMadeTheRows) {
  std::vector<RunRow> rows;
  for (const int64_t width : {512, 1024, 2048})
    for (const int64_t batch : {1, 2, 4}) {
      RunRow row;
      row.id = "r";
      row.device = "H100-80GB";
      row.precision = "bf16";
      row.n_layers = 4, row.d_model = width, row.n_heads = 8, row.ffn = 4 * width, row.vocab = 1024, row.seq_len = 1024;
      row.n_gpus = row.dp = 1, row.global_batch = 8, row.micro_batch = batch;
      rows.push_back(row);
    }
  std::vector<PlannedRow> planned = plan_rows(rows, [](size_t) {});
  ProgramProfile maker;
  maker.products = 0.5;
  for (PlannedRow& p : planned) p.row.tokens_per_s_per_gpu = forecast_of(p, Profiles({maker})).tokens_per_s_per_gpu;
  const Profiles fitted = fit_profiles(planned, Profiles({ProgramProfile()}));
  std::vector<double> ratios;
  for (const PlannedRow& p : planned)
    ratios.push_back(forecast_of(p, fitted).tokens_per_s_per_gpu / *p.row.tokens_per_s_per_gpu);
  EXPECT_LT(errors_of(ratios).median, 0.03);
}

TEST(ScoreSlow, PublishedRunsAreForecastWithinTheGoals) {
  const auto shared = testing::shared_dir() / "planner";
  if (!std::filesystem::exists(shared / "published.csv")) GTEST_SKIP() << "needs ../shared/planner";
  const auto planned = plan_rows(read_run_rows(shared / "published.csv"), [](size_t) {});
  std::vector<RowForecast> forecasts(planned.size());
  for (size_t i = 0; i < planned.size(); ++i)
    if (planned[i].reason.empty()) forecasts[i] = forecast_of(planned[i], Profiles::built_in());
  const ScoreReport report = score_of(planned, forecasts, read_pairs(shared / "ranking_pairs.csv"));
  EXPECT_LE(report.dense.median, 0.08);
  EXPECT_LE(report.moe.median, 0.15);
  EXPECT_LE(std::abs(report.dense.bias), 0.03);
  EXPECT_LE(std::abs(report.moe.bias), 0.03);
  EXPECT_GE(double(report.forecast), 0.95 * double(report.complete));
}

}  // namespace
}  // namespace weft
